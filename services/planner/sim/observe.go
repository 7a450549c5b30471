package sim

import (
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// state is what a planner would know at this moment.
func (w *world) state() plan.State {
	s := w.Config.State
	s.Now, s.Nodes, s.Jobs, s.Memory = at(w.now), w.present, nil, w.memory
	for _, j := range w.jobs {
		if j.Seconds <= w.now && !j.done {
			s.Jobs = append(s.Jobs, w.observe(j))
		}
	}
	return s
}

// observe is what a planner would know of a job.
func (w *world) observe(j *job) plan.Job {
	j.left = slices.DeleteFunc(j.left, func(seconds float64) bool { return w.now-seconds >= time.Hour.Seconds() })
	o := plan.Job{
		ID: j.Name, Priority: train.DefaultPriority, SubmittedAt: at(j.Seconds), EpochsDone: j.epoch, RunSeconds: j.worked, Restarts: max(j.starts-1, 0),
		RecentRestarts: len(j.left), DeviceSeconds: j.deviceSeconds, Planned: j.planned,
	}
	if len(j.parts) > 0 {
		o.Running = &plan.Running{
			Holding: holding(j.parts), StopPending: j.leaving, Seconds: w.now - j.startedAt, Epochs: j.epoch - j.startedEpoch,
			// A process that is still starting has not called yet.
			Spoke: j.starting <= 0,
		}
	}
	j.training.Observe(&o, j.held())
	return o
}

func (w *world) observer(j *job) func() plan.Job { return func() plan.Job { return w.observe(j) } }

// holding is what an attempt holds.
func holding(parts []train.Part) plan.Holding {
	if len(parts) == 1 {
		return plan.Holding{Node: parts[0].Node, Devices: parts[0].Devices, Memory: parts[0].Memory}
	}
	return plan.Holding{Parts: parts}
}
