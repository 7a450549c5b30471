package cli

import (
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// course is what is seen of one run: a fold of facts.
type course struct {
	id   train.JobID
	spec train.Spec

	state   train.State
	reason  string
	devices int
	servers int
	// began is when the present attempt started or its last epoch ended.
	began  time.Time
	epochs []epochSeen
	// beat is the newest heartbeat since the last epoch.
	beat *event.Stepped
	use  processorUse
	// told are the epochs and the use that were told before.
	told    int
	toldUse processorUse
}

// epochSeen is an epoch as the whole job made it.
type epochSeen struct{ seconds, samples, steps float64 }

// processorUse is CPU seconds over the time in which they were measured, for each node of the job.
type processorUse map[train.NodeID]usedSeconds

type usedSeconds struct{ work, measured float64 }

// cores are the processors in use, on average and on all nodes together, since an earlier state; negative where nothing was measured.
func (u processorUse) cores(since processorUse) float64 {
	sum, known := 0.0, false
	for node, now := range u {
		before := since[node]
		if seconds := now.measured - before.measured; seconds > 0 {
			sum, known = sum+(now.work-before.work)/seconds, true
		}
	}
	if !known {
		return -1
	}
	return sum
}

func newCourse(id train.JobID, spec train.Spec) *course {
	return &course{id: id, spec: spec, state: train.StateSubmitted, use: processorUse{}, toldUse: processorUse{}}
}

// see folds one fact. What cannot be read is none.
func (c *course) see(m bus.Message) {
	kind, known := event.Find(m.Parsed)
	if m.ParseErr != nil || !known || kind.Entity == "job" && m.Parsed.ID != string(c.id) {
		return
	}
	body, err := event.DecodeBody(kind, m.Data)
	if err != nil {
		return
	}
	switch b := body.(type) {
	case *event.Rejected:
		c.state, c.reason = train.StateRejected, b.Message
	case *event.Queued:
		if c.state = train.StateQueued; len(b.Blockers) > 0 {
			c.reason = b.Blockers[0].String()
		}
	case *event.Started:
		c.state, c.reason, c.devices, c.servers, c.began, c.beat = train.StateRunning, "", len(b.Devices), b.Servers, m.Time, nil
	case *event.EpochEnded:
		c.epoch(m.Time, b)
	case *event.Stepped:
		if b.Job == c.id && b.Rank == 0 {
			c.beat = b
		}
	case *event.Measured:
		c.measured(b)
	case *event.Succeeded:
		c.state, c.reason = train.StateSucceeded, b.Note
	case *event.Failed:
		c.state, c.reason = train.StateFailed, b.Reason.String()
	case *event.Cancelled:
		c.state = train.StateCancelled
	}
}

// epoch adds what training code says of an epoch; what it leaves out follows from the job and the clock.
func (c *course) epoch(at time.Time, b *event.EpochEnded) {
	e := epochSeen{seconds: b.EpochSeconds, samples: float64(b.Samples), steps: float64(b.Steps)}
	if !(e.seconds > 0) {
		e.seconds = at.Sub(c.began).Seconds()
	}
	if e.samples == 0 {
		e.samples = float64(c.spec.TrainingSetSize)
	}
	if e.steps == 0 {
		e.steps = float64(c.spec.StepsPerEpoch(max(b.Devices, 1)))
	}
	c.epochs, c.began, c.beat = append(c.epochs, e), at, nil
}

// measured adds an interval of a node's meters in which the job used the node. Several attempts of it add up.
func (c *course) measured(b *event.Measured) {
	work, mine := 0.0, false
	for _, u := range b.Users {
		if u.Job == c.id && u.Component == "cpu" {
			work, mine = work+u.Work, true
		}
	}
	if seconds := b.To.Sub(b.From).Seconds(); mine && seconds > 0 {
		used := c.use[b.Node]
		c.use[b.Node] = usedSeconds{used.work + work, used.measured + seconds}
	}
}

// speed is over some epochs: samples and steps a second; zero where there are none.
func speed(epochs []epochSeen) (samples, steps float64) {
	seconds := 0.0
	for _, e := range epochs {
		seconds, samples, steps = seconds+e.seconds, samples+e.samples, steps+e.steps
	}
	if seconds <= 0 {
		return 0, 0
	}
	return samples / seconds, steps / seconds
}

// steady leaves out the first epoch, which loads and warms up, where there are more.
func (c *course) steady() []epochSeen {
	if len(c.epochs) > 1 {
		return c.epochs[1:]
	}
	return c.epochs
}

// line tells how the run goes, since it was last told.
func (c *course) line() string {
	if c.state != train.StateRunning && !c.state.Terminal() {
		words := string(c.state)
		if c.reason != "" {
			words += ": " + c.reason
		}
		return words
	}
	words := fmt.Sprintf("epoch %d of %d", len(c.epochs), c.spec.MaxEpochs)
	samples, steps := speed(c.epochs[c.told:])
	if len(c.epochs) == c.told && c.beat != nil && c.beat.StepSeconds > 0 {
		steps = 1 / c.beat.StepSeconds
		samples = steps * float64(c.spec.BatchSize*max(c.devices, 1))
		words += fmt.Sprintf(" and step %d", c.beat.Step)
	}
	if steps > 0 {
		words += fmt.Sprintf(", %s samples/s, %s steps/s", figure(samples), figure(steps))
	}
	if cores := c.use.cores(c.toldUse); cores >= 0 {
		words += fmt.Sprintf(", %.2f processors in use", cores)
	}
	c.told, c.toldUse = len(c.epochs), maps.Clone(c.use)
	return words
}

// figure prints a speed with three digits or all before the point.
func figure(x float64) string {
	if math.Abs(x) >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
