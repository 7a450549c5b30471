package sim

import (
	"maps"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// jobView is what the planner is told of a job once and for all.
type jobView struct {
	spec    train.Spec
	request plan.Request
	limits  plan.Limits
}

func newJobView(j *job, total int) *jobView {
	l := j.app.limits()
	most := max(min(l.MaxBatch/l.MinLocal, total), 1)
	if j.app.OneDevice {
		most = 1
	}
	return &jobView{
		spec: train.Spec{
			Name: j.Application, BatchSize: ceil(float64(j.Batch) / float64(j.Devices)), TrainingSetSize: j.app.Training.samplesPerEpoch(),
			MaxEpochs: j.app.Epochs, MinDevices: 1, MaxDevices: most, Strategy: train.StrategyAllReduce,
		},
		request: plan.Request{Devices: j.Devices, GlobalBatch: j.Batch}, limits: l,
	}
}

// state is what a live planner would know at this moment; the oracle's part of it is marked.
func (w *world) state() plan.State {
	s := plan.State{
		Now: at(w.now), Nodes: w.present, Tuning: w.Tuning, IntervalSeconds: w.IntervalSeconds, Memory: w.memory, Seed: w.Seed,
	}
	if w.live() {
		s = w.Config.State
		s.Now, s.Nodes, s.Jobs, s.Memory = at(w.now), w.present, nil, w.memory
	}
	for _, j := range w.jobs {
		if j.Seconds > w.now || j.done {
			continue
		}
		s.Jobs = append(s.Jobs, j.course.observe(w, j))
	}
	return s
}

// observe adds what only oracles may read.
func (a *Application) observe(w *world, j *job) plan.Job {
	seen := w.observe(j)
	seen.Oracle = &plan.Oracle{RemainingSteps: j.remainingSteps(), StepSeconds: j.oracle, StepTime: j.trueStep, Gain: j.trueGain}
	return seen
}

// observe is what is known of one job of the traces.
func (w *world) observe(j *job) plan.Job {
	if len(j.stale) > 0 {
		w.learn(j)
	}
	o := plan.Job{
		ID: j.Name, Spec: j.view.spec, Priority: train.DefaultPriority, SubmittedAt: at(j.Seconds), EpochsDone: j.epoch, RunSeconds: j.worked,
		Request: &j.view.request, Limits: &j.view.limits, Signature: j.Application, Restarts: max(j.starts-1, 0), DeviceSeconds: j.deviceSeconds,
		Progress: j.progress, Seen: j.seen, Noise: j.noise, RestartSeconds: j.restart, Speeds: maps.Clone(j.speeds),
	}
	if len(j.parts) == 0 {
		return o
	}
	h := holding(j.parts)
	o.Planned = &h
	o.Running = &plan.Running{Holding: h, Seconds: w.now - j.startedAt, Epochs: j.epoch - j.startedEpoch, Spoke: true}
	return o
}

func holding(parts []train.Part) plan.Holding {
	if len(parts) == 1 {
		return plan.Holding{Node: parts[0].Node, Devices: parts[0].Devices}
	}
	return plan.Holding{Parts: parts}
}
