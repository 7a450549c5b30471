package jobapi

import (
	"context"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// progressBody is how far a program is that does not call the job API itself: its supervisor reads it from what the
// program writes, or a library in it reports it.
type progressBody struct {
	EpochsDone *int64 `json:"epochs_done"`
	// Step counts the steps of the whole training; EpochStep those of the epoch, which has EpochSteps.
	Step       *int64 `json:"step"`
	EpochStep  *int64 `json:"epoch_step"`
	EpochSteps int64  `json:"epoch_steps"`
	// Last is set in the report that follows the end of the program: the epoch ended at some time before.
	Last    bool               `json:"last"`
	Loss    *float64           `json:"loss"`
	Metrics map[string]float64 `json:"metrics"`
}

func (b progressBody) check() strict.Problems {
	var c checks
	c.required("epochs_done", b.EpochsDone)
	for field, n := range map[string]*int64{"step": b.Step, "epoch_step": b.EpochStep} {
		c.count(field, deref(n))
	}
	c.count("epoch_steps", b.EpochSteps)
	return c.problems
}

// progress takes progress as a heartbeat and as the ends of epochs.
func (a *API) progress(ctx context.Context, c call, b progressBody) (answer, *refusal) {
	c.overheard = true
	said := answer{json: struct{}{}, overheard: true}
	if b.Step != nil {
		seconds, steps := c.session.pace(*b.Step, c.now)
		c.session.gather(func(t *tally) { t.step(seconds, steps, 0) })
		beat := stepped{Step: int(*b.Step), Steps: int(steps), Epoch: int(*b.EpochsDone), EpochStep: b.EpochStep, EpochSteps: int(b.EpochSteps), Seconds: seconds}
		a.noteSteps(ctx, c, c.session.step(beat, c.now), false)
		a.beat(c, event.Stepped{
			Step: beat.Step, Epoch: beat.Epoch, EpochStep: int(deref(b.EpochStep)), EpochSteps: beat.EpochSteps, Steps: beat.Steps, StepSeconds: seconds,
			Loss: b.Loss, Metrics: taken(b.Metrics),
		})
	}
	// Each report has the number of epochs done. If it has not grown, loss and metrics are those of the running epoch.
	if int(*b.EpochsDone) <= max(c.session.attempt.StartedEpochs, c.session.epochsRecorded(0)) {
		return said, nil
	}
	fact := event.EpochEnded{Loss: b.Loss, Metrics: taken(b.Metrics)}
	if seconds := c.session.sinceEpoch(*b.EpochsDone, c.now); !b.Last {
		fact.EpochSeconds = seconds
	}
	return said, a.endOfEpoch(ctx, c, "epochs_done", *b.EpochsDone, fact)
}

// outside is what is remembered of the progress of a program that does not call: when it was at a step, and when an
// epoch ended.
type outside struct {
	step    int64
	stepAt  time.Time
	epochs  int64
	epochAt time.Time
}

// pace returns the mean time of the steps since the last report, and their number.
func (s *session) pace(step int64, now time.Time) (seconds float64, steps int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if steps = step - s.outside.step; !s.outside.stepAt.IsZero() && steps > 0 {
		seconds = now.Sub(s.outside.stepAt).Seconds() / float64(steps)
	} else if steps <= 0 && !s.outside.stepAt.IsZero() {
		return s.steps.Seconds, 0
	}
	s.outside.step, s.outside.stepAt = step, now
	return seconds, max(steps, 0)
}

// sinceEpoch returns how long the epoch with this number took, which has just ended. It returns 0 if the end of the
// epoch before it was not reported: when the program says something for the first time, its epoch runs already.
func (s *session) sinceEpoch(epochs int64, now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.outside
	if epochs == before.epochs {
		return 0
	}
	s.outside.epochs, s.outside.epochAt = epochs, now
	if epochs != before.epochs+1 || before.epochAt.IsZero() {
		return 0
	}
	return now.Sub(before.epochAt).Seconds()
}

// trainerBody is a report of the Kubeflow trainer's status protocol (KEP-2779), which Hugging Face's Trainer speaks.
type trainerBody struct {
	TrainerStatus struct {
		Metrics []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"metrics"`
	} `json:"trainerStatus"`
}

// trainerStatus takes such a report. Its percentage adds nothing to the steps, epochs and losses in its metrics.
func (a *API) trainerStatus(ctx context.Context, c call) (answer, *refusal) {
	var b trainerBody
	if problems := parseAndCheck(c.body, &b, func() strict.Problems { return nil }); problems != nil {
		return answer{}, badRequest(problems)
	}
	metrics := map[string]float64{}
	for _, m := range b.TrainerStatus.Metrics {
		if x, err := strconv.ParseFloat(m.Value, 64); err == nil {
			train.Note(metrics, m.Name, x)
		}
	}
	body := trainerProgress(metrics)
	if problems := body.check(); problems != nil {
		return answer{}, badRequest(problems)
	}
	return a.progress(ctx, c, body)
}

// trainerProgress reads progress from metrics. Epochs are fractions in them: 1.5 is the middle of the second one.
func trainerProgress(metrics map[string]float64) progressBody {
	take := func(name string) (float64, bool) {
		x, found := metrics[name]
		delete(metrics, name)
		return x, found && x >= 0 && x <= float64(maxCount)
	}
	b := progressBody{EpochsDone: new(int64)}
	now, named := take("current_epoch")
	logged, known := take("epoch")
	if !named {
		now, named = logged, known
	}
	*b.EpochsDone = int64(now)
	step, counted := take("current_step")
	total, bounded := take("total_steps")
	if loss, found := metrics["loss"]; found {
		b.Loss = &loss
		delete(metrics, "loss")
	}
	b.Metrics = maps.Clone(metrics)
	if !counted {
		return b
	}
	b.Step = new(int64)
	*b.Step = int64(step)
	switch {
	case named && now >= 1:
		b.EpochSteps = int64(math.Round(step / now))
		part := max(*b.Step-*b.EpochsDone*b.EpochSteps, 0)
		b.EpochStep = &part
	case !named && bounded:
		b.EpochStep, b.EpochSteps = b.Step, int64(total)
	}
	return b
}

// bearer returns the token of a request's header.
func bearer(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return strings.TrimSpace(token)
}
