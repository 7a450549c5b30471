package sim

import (
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Absence is a stretch of a run in which a device of Config.Nodes is not there. Both ends may be infinite.
type Absence struct {
	Node                      train.NodeID
	Device                    train.DeviceID
	FromSeconds, UntilSeconds float64
}

// attend brings the cluster up to the moment. What runs on a node of which nothing is left is lost with it; a job
// that holds a device gone from a node that is still there is left to the policy, as a live planner does it.
func (w *world) attend() {
	if w.now < w.changesAt {
		return
	}
	absent := map[deviceID]bool{}
	w.changesAt = math.Inf(1)
	for _, a := range w.Absences {
		if a.FromSeconds <= w.now && w.now < a.UntilSeconds {
			absent[deviceID{a.Node, a.Device}] = true
		}
		for _, change := range []float64{a.FromSeconds, a.UntilSeconds} {
			if change > w.now {
				w.changesAt = min(w.changesAt, change)
			}
		}
	}
	if w.present = w.nodes; len(w.Absences) == 0 {
		return
	}
	// Watchers may have kept the nodes of an earlier state: they are not changed in place.
	w.present = nil
	there := map[train.NodeID]bool{}
	for _, n := range w.nodes {
		n.Devices = slices.DeleteFunc(slices.Clone(n.Devices), func(d train.Device) bool { return absent[deviceID{n.ID, d.ID}] })
		if len(n.Devices) > 0 {
			w.present, there[n.ID] = append(w.present, n), true
		}
	}
	for _, j := range w.jobs {
		if slices.ContainsFunc(j.parts, func(p train.Part) bool { return !there[p.Node] }) {
			j.lose()
		}
	}
}

// lose ends an attempt where it is: the job goes on from its last checkpoint, which is that of the end of an epoch, or
// the one that the attempt began with.
func (j *job) lose() {
	saved := position{epoch: j.epoch, progress: j.training.End(j.epoch)}
	if j.started.epoch == j.epoch && j.started.progress > saved.progress {
		saved = j.started
	}
	j.position = saved
	j.beat.Done = int(saved.epochSteps)
	j.stop()
}

// supply is the device time that there was until a moment.
func (w *world) supply(until float64) float64 {
	until = max(until, 1)
	sum := float64(w.total) * until
	for _, a := range w.Absences {
		sum -= max(min(a.UntilSeconds, until)-max(a.FromSeconds, 0), 0)
	}
	return sum
}
