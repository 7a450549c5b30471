package jobapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

const okText = "ok"

// hasToStop is KubeProfiler's question: a body of exactly 1 means yes.
func (a *API) hasToStop(ctx context.Context, c call) (answer, *refusal) {
	if a.mustStop(ctx, c) {
		return answer{text: "1"}, nil
	}
	return answer{text: "0"}, nil
}

// mustStop reports whether the attempt has to leave. A yes is recorded before it is answered: only then does the exit
// count as a preemption. If it cannot be recorded the answer is no, and the end of the next epoch brings another
// chance.
func (a *API) mustStop(ctx context.Context, c call) bool {
	s := c.session
	if s.known().StopAnswered {
		return true // some process may have got this answer
	}
	if a.bus.Ready() != nil {
		return false
	}
	if s.current().Stop == train.StopNone && (a.paused == nil || !a.paused(ctx, s.attempt.Job, s.known().EpochsDone)) {
		return false
	}
	s.recording.Lock()
	defer s.recording.Unlock()
	if s.known().StopAnswered {
		return true
	}
	if a.box.Len() > 0 {
		return false // what waits there comes first: it may be a yes that is withdrawn
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), busTimeout)
	defer cancel()
	r, err := a.store(within, effect{Report: train.AttemptReport{Job: s.attempt.Job, Attempt: s.attempt.Number, Spoke: !c.overheard, StopAnswered: true}})
	if err != nil {
		a.log.Warn("stop not answered: it could not be recorded", "job", s.attempt.Job, "attempt", s.attempt.Number, "error", err)
		a.withdrawStop(c)
		return false
	}
	s.learn(r)
	return true
}

// control is the richer question. If it names its epoch, all processes of the attempt get the same answer. If it names
// a step, one process asks for all of them.
func (a *API) control(ctx context.Context, c call) (answer, *refusal) {
	if signal := c.query("signal"); signal != "" {
		return a.controlBySignal(ctx, c, signal)
	}
	epochs, err := strconv.ParseInt(c.query("epochs_done"), 10, 64)
	named := err == nil && c.query("step") == ""
	stop, known := false, false
	if named {
		stop, known = c.session.answered(epochs)
	}
	if !known {
		stop = a.mustStop(ctx, c)
		if named {
			stop = c.session.remember(epochs, stop)
		}
	}
	return answer{json: controlRecord{Stop: stop, batchRecord: a.batch(ctx, c.session)}}, nil
}

// controlBySignal is the question of a supervisor, which passes a stop on by a signal. It is noted first that the
// attempt can be asked to leave at all.
func (a *API) controlBySignal(ctx context.Context, c call, signal string) (answer, *refusal) {
	if signal != train.SignalSave && signal != train.SignalEnd {
		return answer{}, badRequest(strict.Problems{{Field: "signal", Message: fmt.Sprintf("want %s or %s, found %.20q", train.SignalSave, train.SignalEnd, signal)}})
	}
	c.overheard = true
	stop := a.note(ctx, c.session, train.AttemptReport{Signal: signal}) && a.mustStop(ctx, c)
	return answer{json: controlRecord{Stop: stop}, overheard: true}, nil
}

// controlRecord is what the scheduler wants of a job.
type controlRecord struct {
	Stop bool `json:"stop"`
	batchRecord
}

// batchRecord is the batch that a job has to use; null leaves it as it is.
type batchRecord struct {
	MicroBatch   *int   `json:"micro_batch"`
	Accumulation *int   `json:"accumulation"`
	Generation   uint64 `json:"generation"`
	GlobalBatch  *int   `json:"global_batch,omitempty"`
}

// batch returns the batch that is wanted of an attempt: the planned one, in the passes that suit the device if it is
// shared. Larger steps than submitted are recorded before they are requested: if the device lacks memory for them, no
// co-runner is to blame.
func (a *API) batch(ctx context.Context, s *session) batchRecord {
	var r batchRecord
	attempt := s.current()
	planned, devices := attempt.Batch, attempt.DeviceCount()
	global := planned.Global(devices)
	if planned.LocalBatch > 0 {
		passes := planned.Passes()
		r = batchRecord{&planned.LocalBatch, &passes, attempt.BatchGeneration, &global}
	}
	if a.tuned == nil {
		return r
	}
	wanted, generation, tuned := a.tuned(attempt)
	if !tuned || wanted.Enlarged && !a.note(ctx, s, train.AttemptReport{Enlarged: true}) {
		return r
	}
	r.MicroBatch, r.Accumulation, r.Generation = &wanted.MicroBatch, &wanted.Accumulation, generation
	if planned.LocalBatch > 0 {
		wanted.Accumulation = max(1, (global+devices*wanted.MicroBatch-1)/(devices*wanted.MicroBatch))
	}
	return r
}

// profiling takes KubeProfiler's heartbeat. The last one of an epoch carries the epoch's duration and comes before
// end_epoch.
func (a *API) profiling(ctx context.Context, c call, b profile) (answer, *refusal) {
	memory := unit.Bytes(b.MemoryMiB) * unit.MiB
	if b.Rank == 0 {
		c.session.gather(func(t *tally) {
			// The mean is over the whole run so far, so the newest one stands for all.
			t.stepSeconds, t.steps, t.memory = b.MeanSeconds, 1, max(t.memory, memory)
			if b.EpochTime != nil {
				t.epochSeconds = *b.EpochTime
			}
		})
		iteration, epoch := int(*b.Iteration), c.session.known().EpochsDone
		a.noteSteps(ctx, c, c.session.step(stepped{Step: iteration, Steps: iteration, Epoch: epoch, Seconds: b.MeanSeconds}, c.now), false)
	}
	a.beat(c, event.Stepped{
		Rank: int(b.Rank), Step: int(*b.Iteration), Epoch: c.session.known().EpochsDone, StepSeconds: b.MeanSeconds, MemoryBytes: memory,
	})
	return answer{text: okText}, nil
}

// endEpoch takes KubeProfiler's end of an epoch.
func (a *API) endEpoch(ctx context.Context, c call, b doneBody) (answer, *refusal) {
	return answer{text: okText}, a.endOfEpoch(ctx, c, "done", *b.Done, event.EpochEnded{BatchIgnored: c.session.current().Batch.LocalBatch > 0})
}

// signalEnd takes the end of a job as older libraries report it.
func (a *API) signalEnd(ctx context.Context, c call) (answer, *refusal) {
	a.releaseLast(ctx, c)
	return answer{text: okText}, a.record(ctx, c, nil, train.AttemptReport{Ended: endFinished})
}

// steps takes a heartbeat. The answer has the wanted micro-batch, so a change need not wait for the end of an epoch.
func (a *API) steps(ctx context.Context, c call, b stepsBody) (answer, *refusal) {
	memory := unit.Bytes(b.MemoryBytes)
	if b.Rank == 0 {
		c.session.gather(func(t *tally) { t.step(b.StepSeconds, b.Steps, memory) })
		a.noteSteps(ctx, c, c.session.step(b.progress(), c.now), b.AnyStep)
	}
	a.beat(c, event.Stepped{
		Rank: int(b.Rank), Step: int(*b.Step), Epoch: int(b.Epoch), EpochStep: int(deref(b.EpochStep)), EpochSteps: int(b.EpochSteps),
		Steps: int(b.Steps), StepSeconds: b.StepSeconds, WaitSeconds: b.WaitSeconds,
		Samples: int(b.Samples), Loss: b.Loss, Metrics: taken(b.Metrics), GradSquared: b.GradSquared, GradVariance: b.GradVariance, MemoryBytes: memory,
		MicroBatch: int(b.MicroBatch), Generation: uint64(b.Generation), Batch: b.run(),
	})
	said := beatAnswer{Stop: b.AnyStep && c.session.current().Stop != train.StopNone}
	if wanted := a.batch(ctx, c.session); wanted.MicroBatch != nil {
		said.batchRecord = &wanted
	}
	return answer{json: said}, nil
}

// beatAnswer is the answer to a heartbeat. Stop says that control will answer with a stop; the code leaves only after
// that answer.
type beatAnswer struct {
	Stop bool `json:"stop,omitempty"`
	*batchRecord
}

// epochs takes the end of an epoch. All processes of a job may report it; the first report is recorded.
func (a *API) epochs(ctx context.Context, c call, b epochBody) (answer, *refusal) {
	if b.Rank != 0 {
		return answer{json: struct{}{}}, nil
	}
	c.overheard = b.Overheard
	attempt := c.session.current()
	return answer{json: struct{}{}, overheard: b.Overheard}, a.endOfEpoch(ctx, c, "epochs_done", *b.EpochsDone, event.EpochEnded{
		EpochSeconds: b.EpochSeconds, Steps: int(b.Steps), Samples: int(b.Samples), Loss: b.Loss, Metrics: taken(b.Metrics),
		GradSquared: b.GradSquared, GradVariance: b.GradVariance, MemoryBytes: unit.Bytes(b.MemoryBytes), Batch: b.run(),
		BatchIgnored: b.ignored(attempt.Batch, attempt.DeviceCount()),
	})
}

// endOfEpoch records the number of finished epochs. A number that is known already was recorded before and gets the
// same answer.
func (a *API) endOfEpoch(ctx context.Context, c call, field string, done int64, fact event.EpochEnded) *refusal {
	if refused := c.plausible(field, done); refused != nil {
		return refused
	}
	attempt := c.session.attempt
	if int(done) <= c.session.epochsRecorded(0) {
		return nil
	}
	running := c.session.takeTally()
	fact.Attempt, fact.EpochsDone, fact.Devices = attempt.Number, int(done), attempt.DeviceCount()
	if fact.EpochSeconds == 0 {
		fact.EpochSeconds = running.epochSeconds
	}
	fact.StepSeconds = running.meanStepSeconds()
	fact.MemoryBytes = max(fact.MemoryBytes, running.memory)
	if a.usesMemory != nil {
		fact.MemoryBytes = a.usesMemory(attempt, fact.MemoryBytes)
	}
	if a.since != nil {
		fact.BatchesSince = a.since(attempt, c.now)
	}
	f := event.JobFact(attempt.Job, event.FactEpochEnded, fmt.Sprintf("attempt/%d/epoch/%d", attempt.Number, done), fact)
	if refused := a.record(ctx, c, &f, train.AttemptReport{EpochsDone: int(done), Batch: fact.Batch, Steps: c.session.nextEpoch(int(done), c.now)}); refused != nil {
		return refused
	}
	c.session.epochsRecorded(int(done))
	if a.epochEnded != nil {
		a.epochEnded(event.EpochMark{
			Job: attempt.Job, Attempt: attempt.Number, EpochsDone: int(done), At: c.now, Samples: fact.Samples, Loss: fact.Loss, Metrics: fact.Metrics,
		})
	}
	return nil
}

// checkpoints takes a saved state.
func (a *API) checkpoints(ctx context.Context, c call, b checkpointBody) (answer, *refusal) {
	attempt := c.session.attempt
	if b.Found > 0 {
		c.overheard = true
		done := int64(max(c.session.known().EpochsDone, attempt.StartedEpochs))
		b.EpochsDone = &done
	}
	if refused := c.plausible("epochs_done", *b.EpochsDone); refused != nil {
		return answer{}, refused
	}
	key := fmt.Sprintf("attempt/%d/checkpoint/%d", attempt.Number, *b.EpochsDone)
	if b.Found > 0 {
		key = fmt.Sprintf("attempt/%d/checkpoint/found/%d", attempt.Number, b.Found)
	}
	if b.EpochStep > 0 {
		key += fmt.Sprintf("/step/%d", b.EpochStep)
	}
	f := event.JobFact(attempt.Job, event.FactCheckpointWritten, key, event.CheckpointWritten{
		Attempt: attempt.Number, EpochsDone: int(*b.EpochsDone), EpochStep: int(b.EpochStep), EpochSteps: int(b.EpochSteps),
		Path: b.Path, Size: unit.Bytes(b.Bytes), Seconds: b.Seconds,
	})
	return answer{json: struct{}{}, overheard: c.overheard}, a.record(ctx, c, &f, train.AttemptReport{
		Checkpoint: b.Path, CheckpointEpochs: int(*b.EpochsDone), CheckpointStep: int(b.EpochStep), FoundCheckpoint: b.Found > 0,
	})
}

// end takes the final report of an attempt.
func (a *API) end(ctx context.Context, c call, b endBody) (answer, *refusal) {
	change := train.AttemptReport{Ended: b.Outcome}
	if b.EpochsDone != nil {
		if refused := c.plausible("epochs_done", *b.EpochsDone); refused != nil {
			return answer{}, refused
		}
		change.EpochsDone = int(*b.EpochsDone)
	}
	a.releaseLast(ctx, c)
	return answer{json: struct{}{}}, a.record(ctx, c, nil, change)
}

// plausible refuses a number of epochs that no training reaches.
func (c call) plausible(field string, epochs int64) *refusal {
	most := int64(max(c.session.known().EpochsDone, c.session.attempt.StartedEpochs)) + maxEpochLeap
	if epochs > most {
		return badRequest(strict.Problems{{Field: field, Message: fmt.Sprintf("want at most %d, found %d", most, epochs)}})
	}
	return nil
}

// record makes a fact and a change of the attempt's record durable.
func (a *API) record(ctx context.Context, c call, fact *event.Fact, change train.AttemptReport) *refusal {
	change.Job, change.Attempt, change.Spoke = c.session.attempt.Job, c.session.attempt.Number, !c.overheard
	d, err := newEffect(fact, c.now, change)
	if err == nil {
		err = a.keep(ctx, c.session, a.thin(c.session, d, c.now))
	}
	if err != nil {
		a.log.Error("report not stored", "job", change.Job, "attempt", change.Attempt, "error", err)
		return &refusal{http.StatusServiceUnavailable, "Unavailable", "this could be stored neither on the bus nor on disk", "try again"}
	}
	return nil
}
