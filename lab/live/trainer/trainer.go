// Package trainer is training code that computes nothing: it replays a measured training. It takes the measured step
// times of the devices and the batch that it was given, divided by a factor, and does all else that training code does:
// it meets the other processes of its gang, reports steps, epochs and the measured gradient noise to the job API,
// follows the batch, saves checkpoints, and leaves when it is asked to.
package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/jobapi"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/ring"
	"github.com/switchyard-dl/switchyard/lab/live"
	"github.com/switchyard-dl/switchyard/lab/traces"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	joinTimeout = time.Minute
	// silence is how long a process may keep the others waiting: more than the longest stretch.
	silence = 5 * time.Minute
)

// state is what a checkpoint holds.
type state struct {
	Epochs   int     `json:"epochs"`
	Progress float64 `json:"progress"`
	Steps    uint64  `json:"steps"`
	// EpochSteps counts the steps of the epoch after them.
	EpochSteps uint64 `json:"epoch_steps"`
}

// trainer is one process. Rank 0 trains, the others wait for what it says.
type trainer struct {
	settings
	course traces.Course
	ring   *ring.Ring
	api    *jobapi.Client
	// shape are the devices of the gang on each node.
	shape []int
	state state
	// epochSteps is how many steps the running epoch has at its present batch.
	epochSteps int
	// due is when the work done so far ends: time lost to reports and saves is made up for, as training code that does
	// them on the side would.
	due time.Time
}

// Run runs a process of a job and returns its exit code.
func Run(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) int {
	s, err := read(args, getenv, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "replay: %v\n", err)
		return 2
	}
	t := &trainer{settings: s, api: &jobapi.Client{}}
	if s.place.Rank == 0 {
		t.api = jobapi.New(s.api, s.uuid, s.unreported, stderr)
	}
	outcome, err := t.run(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "replay: rank %d: %v\n", s.place.Rank, err)
		if !errors.Is(err, ring.ErrPeerLost) && ctx.Err() == nil {
			t.api.End(ctx, jobapi.End{Outcome: jobapi.Failed, EpochsDone: uint64(t.state.Epochs), Message: err.Error()})
		}
		return 1
	}
	t.api.End(ctx, jobapi.End{Outcome: outcome, EpochsDone: uint64(t.state.Epochs)})
	return 0
}

func (t *trainer) run(ctx context.Context) (outcome jobapi.Outcome, err error) {
	app, err := traces.LoadOne(os.DirFS(t.traces), "traces", "derived", t.application)
	if err != nil {
		return "", err
	}
	t.course = app.Course("")
	if err := t.load(); err != nil {
		return "", err
	}
	if t.ring, err = ring.Join(ctx, t.place); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, t.ring.Close()) }()
	if err := t.gather(); err != nil {
		return "", err
	}
	if t.place.Rank > 0 {
		return "", t.attend()
	}
	t.due = time.Now()
	for t.state.Epochs < t.course.Epochs {
		stop, err := t.epoch(ctx)
		if err != nil {
			return "", err
		}
		if stop {
			return jobapi.Stopped, t.tell(true)
		}
	}
	return jobapi.Finished, t.tell(true)
}

// gather learns how many devices each process has.
func (t *trainer) gather() error {
	counts := make([]float64, t.place.World)
	counts[t.place.Rank] = float64(t.devices)
	if err := t.ring.AllReduce(counts); err != nil {
		return fmt.Errorf("count the devices of the gang: %w", err)
	}
	for _, n := range counts {
		t.shape = append(t.shape, int(n))
	}
	return nil
}

// tell has the other processes go on or end, once in a stretch.
func (t *trainer) tell(end bool) error {
	word := []byte{0}
	if end {
		word[0] = 1
	}
	if _, err := t.ring.Broadcast(word); err != nil {
		return fmt.Errorf("tell the gang: %w", err)
	}
	return nil
}

// attend is the work of the processes other than rank 0.
func (t *trainer) attend() error {
	for {
		word, err := t.ring.Broadcast(nil)
		if err != nil {
			return fmt.Errorf("wait for rank 0: %w", err)
		}
		if len(word) == 1 && word[0] == 1 {
			return nil
		}
	}
}

// epoch trains to the end of an epoch, or of the step after which it is asked to leave, saves and reports. It returns
// whether to leave, which is never so after the last epoch.
func (t *trainer) epoch(ctx context.Context) (stop bool, err error) {
	begun, from, earlier := time.Now(), t.state.Progress, t.state.EpochSteps
	end := t.course.End(t.state.Epochs + 1)
	part := live.Epoch{Job: t.job, Attempt: t.attempt, Epoch: t.state.Epochs + 1, From: from, Begun: unix(begun)}
	batch := t.wanted()
	for t.state.Progress < end {
		batch = t.wanted()
		if err := t.stretch(ctx, batch, end); err != nil {
			return false, err
		}
		if t.state.Progress < end && t.api.StopNear() && t.api.StopRequestedAt(ctx, t.state.Steps) {
			saved, err := t.keep(part)
			if err == nil {
				t.api.Saved(ctx, saved)
			}
			return true, err
		}
	}
	ended := time.Now()
	steps := t.state.EpochSteps
	t.state.Epochs, t.state.EpochSteps = t.state.Epochs+1, 0
	saved, err := t.keep(part)
	if err != nil {
		return false, err
	}
	// If an earlier attempt began the epoch, the whole is reported at the pace of this one.
	share := float64(steps) / float64(steps-earlier)
	t.api.EpochEnded(ctx, saved,
		jobapi.Epoch{EpochsDone: uint64(t.state.Epochs), EpochSeconds: ended.Sub(begun).Seconds() * share, Steps: int(steps), Batch: batch})
	return t.state.Epochs < t.course.Epochs && t.api.StopRequested(ctx), nil
}

// keep saves the state and notes what was trained.
func (t *trainer) keep(trained live.Epoch) (jobapi.Checkpoint, error) {
	begun := time.Now()
	trained.To, trained.Ended = t.state.Progress, unix(begun)
	path, size, err := t.save()
	if err == nil {
		err = t.note(trained)
	}
	return jobapi.Checkpoint{
		EpochsDone: uint64(t.state.Epochs), EpochStep: t.state.EpochSteps, EpochSteps: t.epochSteps, Path: path, Bytes: size,
		Seconds: time.Since(begun).Seconds(),
	}, err
}

// wanted is the batch of the next step.
func (t *trainer) wanted() jobapi.Batch {
	if b := t.api.Wanted(); b.Generation > t.batch.Generation && b.MicroBatch > 0 {
		b.Accumulation = max(b.Accumulation, 1)
		t.batch = b
	}
	return t.batch
}

// stretch trains some steps, at most to the end of the epoch, and reports them.
func (t *trainer) stretch(ctx context.Context, b jobapi.Batch, end float64) error {
	batch := train.Batch{Samples: b.GlobalBatch, LocalBatch: b.MicroBatch, Accumulation: b.Accumulation - 1}
	pace := live.PaceOf(t.course, t.factor, t.shape, batch, t.state.Epochs)
	most := float64(live.BeatSteps(t.heartbeatSteps, pace.StepSeconds))
	ran := math.Min(most, (end-t.state.Progress)/pace.Gain)
	begun := time.Now()
	t.due = t.due.Add(time.Duration(ran * pace.StepSeconds * float64(time.Second)))
	if err := wait(ctx, t.due); err != nil {
		return err
	}
	if t.state.Progress += ran * pace.Gain; ran < most {
		t.state.Progress = end
	}
	steps := max(int(math.Round(ran)), 1)
	t.state.Steps += uint64(steps)
	t.state.EpochSteps += uint64(steps)
	t.epochSteps = int(t.state.EpochSteps) + int(math.Ceil((end-t.state.Progress)/pace.Gain))
	t.api.Steps(ctx, jobapi.Steps{
		Step: t.state.Steps, Epoch: uint64(t.state.Epochs), EpochStep: int(t.state.EpochSteps), EpochSteps: t.epochSteps, AnyStep: true,
		Steps: steps, StepSeconds: time.Since(begun).Seconds() / ran, WaitSeconds: pace.WaitSeconds,
		GradSqr: pace.Square, GradVar: pace.Variance, Batch: b,
	})
	return t.tell(false)
}

func wait(ctx context.Context, until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

const checkpointName = "checkpoint.json"

// load takes up the newest checkpoint.
func (t *trainer) load() error {
	data, err := os.ReadFile(filepath.Join(t.snapshots, checkpointName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &t.state)
	}
	if err != nil {
		return fmt.Errorf("load the checkpoint: %w", err)
	}
	return nil
}

func (t *trainer) save() (path string, size int, err error) {
	path = filepath.Join(t.snapshots, checkpointName)
	data, err := json.Marshal(t.state)
	if err == nil {
		err = os.MkdirAll(t.snapshots, 0o755)
	}
	if err == nil {
		err = installation.WriteFile(path, data)
	}
	if err != nil {
		return "", 0, fmt.Errorf("save a checkpoint: %w", err)
	}
	return path, len(data), nil
}
