package sim

import (
	"github.com/switchyard-dl/switchyard/libs/train"
)

// follow carries out a plan as executors do: a job leaves what it does not keep at its epoch's end, and a job starts
// when all that it was given is free.
func (w *world) follow(p train.Plan) {
	held := w.inUse()
	given := map[*job]bool{}
	for _, a := range p.Allocations {
		j := w.byID[a.Job]
		if j == nil || j.done {
			continue
		}
		places := a.Places()
		given[j] = true
		switch {
		case len(j.parts) > 0:
			j.leaving = j.leaving || !train.SamePlaces(j.parts, places)
		case held.fits(w.devices, places):
			held.add(j, places)
			j.batch = a.Batch
			j.start(places, w.models[places[0].Node])
		}
	}
	for _, j := range w.jobs {
		if !given[j] && len(j.parts) > 0 {
			j.leaving = true
		}
	}
}
