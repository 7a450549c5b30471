package sim

import (
	"github.com/switchyard-dl/switchyard/libs/train"
)

// follow carries out a plan as executors do: a job leaves what it does not keep at its epoch's end, unless a plan gives
// it the same again before its code asks; it starts when all that it was given is free; and its batch follows at once.
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
			if j.leaving = !train.SamePlaces(j.parts, places); !j.leaving {
				j.batch = a.Batch
			}
		case held.fits(w.devices, places):
			held.add(j, places)
			j.batch = a.Batch
			j.start(places, w.firsts[places[0].Node].Model)
		}
	}
	for _, j := range w.jobs {
		if !given[j] && len(j.parts) > 0 {
			j.leaving = true
		}
	}
}
