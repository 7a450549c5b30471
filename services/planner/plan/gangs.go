package plan

import (
	"cmp"
	"slices"
)

// runRequested walks a line of gangs: whoever still fits with the devices that its user asked for runs, on its old devices where it has them; who does
// not fit waits, and later ones may pass.
func (f *fleet) runRequested(line []*gang) {
	var running, starting []*gang
	left, allowance, watts := f.free, f.board.allowance.clone(), f.board.watts()
	for _, g := range line {
		if g.wanted() > min(left, allowance.most(g.Spec.Tenant, watts)) {
			continue
		}
		left -= g.wanted()
		allowance.take(g.Spec.Tenant, g.wanted(), watts)
		if width(g.held) == g.wanted() {
			running = append(running, g)
		} else {
			starting = append(starting, g)
		}
	}
	for _, g := range running {
		if !f.keep(g) {
			starting = append(starting, g)
		}
	}
	shelves := f.newShelves()
	for _, g := range starting {
		shelves.pack(g, g.wanted())
	}
}

// resize gives each gang a size, by place in f.gangs. A gang whose size does not change stays where it is; the others are placed anew, the small ones first.
func (f *fleet) resize(sizes []int) {
	var placed []int
	allowance, watts := f.board.allowance.clone(), f.board.watts()
	for i, g := range f.gangs {
		sizes[i] = min(sizes[i], allowance.most(g.Spec.Tenant, watts))
		allowance.take(g.Spec.Tenant, sizes[i], watts)
		if sizes[i] > 0 && (width(g.held) != sizes[i] || !f.keep(g)) {
			placed = append(placed, i)
		}
	}
	slices.SortStableFunc(placed, func(x, y int) int { return cmp.Compare(sizes[x], sizes[y]) })
	shelves := f.newShelves()
	for _, i := range placed {
		shelves.pack(f.gangs[i], sizes[i])
	}
}

// secondsPerSample is how long a device is observed to take for a sample of a training, by signature: the mean over what the present jobs have seen.
func (f *fleet) secondsPerSample() map[string]float64 {
	sums, counts := map[string]float64{}, map[string]float64{}
	for _, g := range f.gangs {
		for _, s := range g.Seen {
			sums[g.Signature] += (s.StepSeconds - s.SyncSeconds) / float64(max(s.LocalBatch, 1))
			counts[g.Signature]++
		}
	}
	for signature, count := range counts {
		sums[signature] /= count
	}
	return sums
}

// samplesLeft is what the user declared, less what is done.
func (g *gang) samplesLeft() float64 {
	return float64(g.Spec.TrainingSetSize) * float64(max(g.Spec.MaxEpochs-g.EpochsDone, 1))
}
