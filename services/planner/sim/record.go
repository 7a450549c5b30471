package sim

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/learn"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
	"github.com/switchyard-dl/switchyard/services/planner/records"
)

// state is what the planner makes of the records.
func (w *world) state() plan.State {
	r := w.records()
	if w.Show != nil {
		w.Show(r)
	}
	return r.State(at(w.now), w.last, true, w.Config.State)
}

// records returns what the services would have recorded by now.
func (w *world) records() records.Records {
	r := records.Records{
		Whole: policy.IsPlain(w.Policy),
		Jobs:  w.active(), Nodes: slices.Values(w.present),
		Usage:    w.use(),
		Attempts: map[string]train.Attempt{}, Reports: map[string]train.AttemptReport{}, Models: map[string]train.Model{},
	}
	for j := range r.Jobs {
		w.byID[j.ID].enter(r)
	}
	return r
}

// use counts what tenants have used, and returns it.
func (w *world) use() map[string]float64 {
	if len(w.State.Shares) == 0 {
		return nil
	}
	now, before := at(w.now), w.usage.At
	w.usage.Advance(now, func(yield func(records.Held) bool) {
		for _, j := range w.jobs {
			used := j.deviceSeconds - j.counted
			j.counted = j.deviceSeconds
			if used > 0 && !yield(records.Held{Tenant: j.spec.Tenant, Devices: used / now.Sub(before).Seconds(), From: before, To: now}) {
				return
			}
		}
	})
	return w.usage.DeviceSeconds
}

// active are the records of the jobs that have come and have not ended, in the order of the workload.
func (w *world) active() iter.Seq[*train.Job] {
	return func(yield func(*train.Job) bool) {
		for _, j := range w.jobs {
			if j.Seconds > w.now || j.done {
				continue
			}
			r := j.record(w.now)
			if r.Ended, r.ReadyAt = w.endedFor(j); !yield(&r) {
				return
			}
		}
	}
}

// endedFor returns which of the jobs that a job waits for have ended, and when the last one had. All that end here
// succeed, and jobs that are not simulated have ended before.
func (w *world) endedFor(j *job) (map[train.JobID]train.State, time.Time) {
	ended, last := map[train.JobID]train.State{}, time.Time{}
	for _, d := range j.spec.Dependencies() {
		other := w.byID[d.Job]
		if other != nil && !other.done {
			continue
		}
		ended[d.Job] = train.StateSucceeded
		if other != nil && at(other.completion).After(last) {
			last = at(other.completion)
		}
	}
	return ended, last
}

// admit has the profiler follow a job, which may borrow from those of its family.
func (w *world) admit(j *job) {
	j.learned = learn.New(j.Name, j.spec, func(n train.NodeID, _ train.DeviceID) train.Device { return w.firsts[n] })
	j.family = j.learned.Family()
	j.fresh = w.library.Lend(j.learned)
}

// teach has jobs that have reported something, or have succeeded, teach the others of their family.
func (w *world) teach() {
	taught := map[string]bool{}
	for _, j := range w.jobs {
		if !j.reported {
			continue
		}
		j.reported = false
		news := w.library.Learn(j.learned)
		if j.done {
			news = w.library.Succeeded(j.learned)
		}
		taught[j.family] = taught[j.family] || news
	}
	for _, j := range w.jobs {
		if j.learned != nil && !j.done && taught[j.family] && w.library.Lend(j.learned) {
			j.fresh = true
		}
	}
}

// record is the job in the register. Times of the running attempt are added by the planner.
func (j *job) record(now float64) train.Job {
	j.left = slices.DeleteFunc(j.left, func(c train.Change) bool { return at(now).Sub(c.At) >= time.Hour })
	r := train.Job{
		ID: j.Name, Spec: j.spec, State: train.StateQueued, SubmittedAt: at(j.Seconds), Attempt: j.starts, Restarts: max(j.starts-1, 0),
		RunSeconds: j.before.worked, DeviceSeconds: j.before.deviceSeconds, History: j.left,
	}
	r.Assume()
	if !j.training.Opaque() {
		r.EpochsDone = j.epoch
	}
	if len(j.parts) > 0 {
		r.State = train.StateRunning
	} else {
		r.RunSeconds, r.DeviceSeconds = j.worked, j.deviceSeconds
		r.EpochStep, r.EpochSteps = j.beat.Done, j.beat.Of
	}
	return r
}

// enter adds the attempt, its report and the model.
func (j *job) enter(r records.Records) {
	if j.fresh {
		m := j.learned.Model()
		j.model, j.fresh = &m, false
	}
	if j.model != nil {
		r.Models[string(j.Name)] = *j.model
	}
	if j.starts == 0 {
		return
	}
	a := train.Attempt{Job: j.Name, Number: j.starts, Phase: train.PhaseExited, Outcome: train.OutcomePreempted, StartedAt: at(j.startedAt)}
	if len(j.parts) > 0 {
		a.Phase, a.Outcome = train.PhaseRunning, train.OutcomeNone
		a.SetPlaces(j.parts)
	}
	if j.leaving {
		a.Stop = train.StopPreempt
	}
	report := train.AttemptReport{Job: j.Name, Attempt: j.starts}
	if !j.training.Opaque() {
		// A process that is still starting has not called yet. A job that may be moved at once need not be asked.
		a.StartedEpochs, a.StartedStep = j.started.epoch, int(j.started.epochSteps)
		report.EpochsDone, report.Spoke = j.epoch, j.atOnce || j.starting <= 0 && (j.beat.Known() || !j.training.AnyStep())
		report.Steps, report.AnyStep = j.beat, j.training.AnyStep()
	}
	r.Attempts[string(j.Name)] = a
	r.Reports[records.ReportKey(a)] = report
}

// take has the profiler see a fact.
func (j *job) take(body any) {
	if j.learned != nil && !j.training.Opaque() {
		j.fresh = j.learned.Take(at(j.now), body) || j.fresh
		j.reported = true
	}
}

// told has the profiler see the heartbeat of a stretch of training at a goodput, once there is one. An epoch ends with
// one.
func (j *job) told(h Held, seconds, goodput float64, ended bool) {
	if j.learned == nil || j.training.Opaque() {
		return
	}
	b := j.training.Report(h)
	if b.StepSeconds <= 0 {
		return
	}
	j.steps += seconds / b.StepSeconds
	j.epochSteps += seconds / b.StepSeconds
	b.Attempt, b.Devices, b.Step = j.starts, h.Devices(), int(j.steps)
	if b.Steps = b.Step - j.step0; b.Steps < 1 || !ended && b.Steps < j.training.BeatSteps(h) {
		return
	}
	j.step0 = b.Step
	left := (j.training.End(j.epoch+1) - j.progress) / (goodput * b.StepSeconds)
	j.beat = train.Steps{
		Epoch: j.epoch, Done: int(j.epochSteps), Of: int(math.Ceil(j.epochSteps + left)), Total: b.Step, Seconds: b.StepSeconds, At: at(j.now),
	}
	j.fresh = j.learned.Stepped(at(j.now), b) || j.fresh
	j.reported = true
}

// startedFact is what an executor publishes of a start.
func (j *job) startedFact() *event.Started {
	b := &event.Started{Attempt: j.starts, Node: j.parts[0].Node, Devices: train.AllDevices(j.parts), EpochsDone: j.epoch}
	if len(j.parts) > 1 {
		b.Parts = j.parts
	}
	return b
}
