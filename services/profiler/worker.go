package profiler

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
func (j *job) observePace(b event.Stepped) {
	if b.Rank < 0 || b.Rank >= len(j.held) || b.WaitSeconds < 0 || b.WaitSeconds > b.StepSeconds {
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

// straggling returns the worker of the running attempt that slows down the others, unless one was published for the
// attempt. Only with one process per device is it known which device a process has.
func (j *job) straggling() *event.Straggling {
	published := slices.ContainsFunc(j.stragglers, func(s train.Straggler) bool { return s.Attempt == j.attempt })
	if published || len(j.stragglers) >= train.MaxStragglers || j.spec.Launch != train.LaunchPerDevice || len(j.paces) != len(j.held) {
		return nil
	}
	paces := slices.SortedFunc(maps.Values(j.paces), func(x, y curve.WorkerPace) int { return cmp.Compare(x.Rank, y.Rank) })
	rank, slowdown, found := curve.Straggler(paces, j.spec.SpeedKind() == train.SpeedServersAsync)
	if !found {
		return nil
	}
	return &event.Straggling{
		Straggler: train.Straggler{Attempt: j.attempt, Rank: rank, Node: j.node, Device: j.held[rank], Slowdown: slowdown}, Workers: len(paces),
	}
}

func (j *job) straggled(s train.Straggler) {
	known := slices.ContainsFunc(j.stragglers, func(o train.Straggler) bool { return o.Attempt == s.Attempt })
	if !known && len(j.stragglers) < train.MaxStragglers {
		j.stragglers = append(slices.Clone(j.stragglers), s)
	}
}

// stop reports whether the loss has converged by the job's rule and this was not published yet.
func (j *job) stop() *event.Converged {
	if j.converged || j.spec.Stop == nil || j.epochsDone >= j.spec.MaxEpochs {
		return nil
	}
	points := make([]curve.Point, len(j.history.Epochs))
	for i, e := range j.history.Epochs {
		points[i] = curve.Point{Epoch: float64(e.Epoch), Loss: e.Loss}
	}
	s, converged := curve.Converged(points, j.spec.StopRule())
	if !converged {
		return nil
	}
	return &event.Converged{EpochsDone: s.Epochs, LossDecrease: s.LossDecrease}
}
