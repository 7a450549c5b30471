package sim

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// deviceID names a device of the cluster.
type deviceID struct {
	node   train.NodeID
	device train.DeviceID
}

// device is a device of the run. key is where State.Interference holds the samples of its type.
type device struct {
	memory      unit.Bytes
	key, driver string
}

// use is what jobs hold of a device: all of it, or parts of its memory.
type use struct {
	whole bool
	parts unit.Bytes
	jobs  []*job
}

// uses are the devices in use.
type uses map[deviceID]*use

// add notes that a job holds some parts.
func (u uses) add(j *job, parts []train.Part) {
	for _, p := range parts {
		for _, d := range p.Devices {
			id := deviceID{p.Node, d}
			if u[id] == nil {
				u[id] = &use{}
			}
			here := u[id]
			here.whole, here.parts, here.jobs = here.whole || p.Memory == 0, here.parts+p.Memory, append(here.jobs, j)
		}
	}
}

// fits reports whether an executor would start a job on some parts: a whole device must be free, and of a shared one
// enough memory.
func (u uses) fits(devices map[deviceID]device, parts []train.Part) bool {
	for _, p := range parts {
		for _, d := range p.Devices {
			id := deviceID{p.Node, d}
			if here := u[id]; here != nil && (here.whole || p.Memory == 0 || here.parts+p.Memory > devices[id].memory) {
				return false
			}
		}
	}
	return true
}

// inUse returns what running jobs hold.
func (w *world) inUse() uses {
	u := uses{}
	for _, j := range w.jobs {
		u.add(j, j.parts)
	}
	return u
}

// slowest bounds how slow a job may be predicted to be: a predicted rate of 0 would end the run by starving it.
const slowest = 0.01

// rates predicts the speed of each job that shares a device, as a part of its speed alone: a gang waits in each step
// for its slowest device.
func (w *world) rates(u uses) map[*job]float64 {
	rates := map[*job]float64{}
	for id, here := range u {
		if len(here.jobs) < 2 {
			continue
		}
		known := w.interference(id)
		for i, j := range here.jobs {
			rate, _ := known.RateAmong(j.kind(), kinds(here.jobs, i))
			if before, other := rates[j]; !other || rate < before {
				rates[j] = max(rate, slowest)
			}
		}
	}
	return rates
}

// interference returns the samples of jobs beside each other on a device.
func (w *world) interference(id deviceID) *curve.Interference {
	d := w.devices[id]
	if known := w.State.Interference[d.key]; known != nil {
		return known
	}
	if w.guessed[d.driver] == nil {
		w.guessed[d.driver] = curve.NewInterference(d.driver, nil)
	}
	return w.guessed[d.driver]
}

// kinds are those of all jobs but one, in the order of their names.
func kinds(jobs []*job, except int) []curve.Kind {
	others := slices.Delete(slices.Clone(jobs), except, except+1)
	all := make([]curve.Kind, len(others))
	for i, o := range others {
		all[i] = o.kind()
	}
	return all
}

// kind is the kind of the job on what it holds.
func (j *job) kind() curve.Kind { return j.own.On(j.devices(), len(j.parts)) }

// occupied is how many devices a job keeps busy: of a shared device its share by number.
func (j *job) occupied(u uses) float64 {
	sum := 0.0
	for _, p := range j.parts {
		for _, d := range p.Devices {
			sum += 1 / float64(max(len(u[deviceID{p.Node, d}].jobs), 1))
		}
	}
	return sum
}
