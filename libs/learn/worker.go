package learn

import (
	"cmp"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// recentSteps is how many steps the pace of a worker rests on: beyond twice as many, the older half counts for less.
const recentSteps = 100

// observePace adds a heartbeat to the pace of its worker.
func (j *Job) observePace(b event.Stepped) {
	if b.Rank < 0 || b.Rank >= j.devices || b.WaitSeconds < 0 || b.WaitSeconds > b.StepSeconds {
		return
	}
	if j.paces == nil {
		j.paces = map[int]curve.WorkerPace{}
	}
	p, steps := j.paces[b.Rank], float64(max(b.Steps, 1))
	if p.Steps > 2*recentSteps {
		p.Steps = recentSteps
	}
	p.Rank, p.Steps = b.Rank, p.Steps+steps
	p.StepSeconds += (b.StepSeconds - p.StepSeconds) * steps / p.Steps
	p.WaitSeconds += (b.WaitSeconds - p.WaitSeconds) * steps / p.Steps
	j.paces[b.Rank] = p
}

// Straggling returns the worker of the running attempt that slows down the others, unless one was published for the
// attempt. Only with one process per device is it known which device a process has.
func (j *Job) Straggling() *event.Straggling {
	published := slices.ContainsFunc(j.stragglers, func(s train.Straggler) bool { return s.Attempt == j.attempt })
	if published || len(j.stragglers) >= train.MaxStragglers || j.Spec.Launch != train.LaunchPerDevice || len(j.paces) != j.devices {
		return nil
	}
	paces := slices.SortedFunc(maps.Values(j.paces), func(x, y curve.WorkerPace) int { return cmp.Compare(x.Rank, y.Rank) })
	rank, slowdown, found := curve.Straggler(paces, j.Spec.SpeedKind() == train.SpeedServersAsync)
	if !found {
		return nil
	}
	node, device := j.deviceOfRank(rank)
	return &event.Straggling{
		Straggler: train.Straggler{Attempt: j.attempt, Rank: rank, Node: node, Device: device, Slowdown: slowdown}, Workers: len(paces),
	}
}

// deviceOfRank returns the node and the device of a worker: ranks follow the order of the places.
func (j *Job) deviceOfRank(rank int) (train.NodeID, train.DeviceID) {
	for _, p := range j.places {
		if rank < len(p.Devices) {
			return p.Node, p.Devices[rank]
		}
		rank -= len(p.Devices)
	}
	return "", ""
}

// Straggled records a published straggler.
func (j *Job) Straggled(s train.Straggler) {
	known := slices.ContainsFunc(j.stragglers, func(o train.Straggler) bool { return o.Attempt == s.Attempt })
	if !known && len(j.stragglers) < train.MaxStragglers {
		j.stragglers = append(slices.Clone(j.stragglers), s)
	}
}

// Converged reports whether the loss has converged by the job's rule and this was not published yet.
func (j *Job) Converged() *event.Converged {
	if j.HasConverged || j.Spec.Stop == nil || j.epochsDone >= j.Spec.MaxEpochs {
		return nil
	}
	points := make([]curve.Point, len(j.History.Epochs))
	for i, e := range j.History.Epochs {
		points[i] = curve.Point{Epoch: float64(e.Epoch), Loss: e.Loss}
	}
	s, converged := curve.Converged(points, j.Spec.StopRule())
	if !converged {
		return nil
	}
	return &event.Converged{EpochsDone: s.Epochs, LossDecrease: s.LossDecrease}
}
