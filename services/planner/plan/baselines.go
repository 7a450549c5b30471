package plan

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// GangFIFO runs jobs in order of submission on the devices that they ask for. Whoever runs stays; the first that does not fit blocks all behind it.
// It knows nothing but the requests.
type GangFIFO struct{}

// Name is fifo.
func (GangFIFO) Name() string { return "fifo" }

func (p GangFIFO) decide(s State) train.Plan { return allot(s, p) }

func (GangFIFO) grant(f *fleet) {
	var line []*gang
	for _, g := range f.gangs {
		if !f.keep(g) {
			line = append(line, g)
		}
	}
	shelves := f.newShelves()
	for _, g := range line {
		possible := g.wanted() <= min(shelves.largest(), f.board.allowance.most(g.Spec.Tenant, f.board.watts()))
		if possible && !shelves.pack(g, g.wanted()) {
			return
		}
	}
}

// GangSRTF runs the jobs with the shortest true remaining time on the devices that they ask for, and preempts for them. It is told the future: the
// true remaining steps and step times.
type GangSRTF struct{}

// Name is srtf.
func (GangSRTF) Name() string { return "srtf" }

func (p GangSRTF) decide(s State) train.Plan { return allot(s, p) }

func (GangSRTF) grant(f *fleet) {
	line := slices.Clone(f.gangs)
	left := make(map[*gang]float64, len(line))
	for _, g := range line {
		if o := g.Oracle; o != nil && len(o.StepSeconds) > 0 {
			left[g] = o.RemainingSteps * o.StepSeconds[min(g.wanted(), len(o.StepSeconds))-1]
		}
	}
	slices.SortStableFunc(line, func(x, y *gang) int { return cmp.Compare(left[x], left[y]) })
	f.runRequested(line)
}

// DRF is dominant resource fairness (Ghodsi et al., NSDI'11) among jobs: devices go one by one to the job with the fewest, up to what it asks for. With
// whole devices as the only resource that runs short, that is max-min fairness. It knows nothing but the requests.
type DRF struct{}

// Name is drf.
func (DRF) Name() string { return "drf" }

func (p DRF) decide(s State) train.Plan { return allot(s, p) }

func (DRF) grant(f *fleet) {
	sizes := make([]int, len(f.gangs))
	left, largest := f.free, f.newShelves().largest()
	for given := true; given && left > 0; {
		given = false
		for i, g := range f.gangs {
			if left > 0 && sizes[i] < min(g.wanted(), largest) {
				sizes[i]++
				left--
				given = true
			}
		}
	}
	f.resize(sizes)
}

// Tetris packs (Grandl et al., SIGCOMM'14): among the jobs that wait, the one goes first whose request fits what is free best and whose remaining work is
// small, both in equal parts on average. Whoever runs stays. It knows the requests, the declared epochs and the step times that jobs of the same
// signature have shown.
type Tetris struct{}

// Name is tetris.
func (Tetris) Name() string { return "tetris" }

func (p Tetris) decide(s State) train.Plan { return allot(s, p) }

func (Tetris) grant(f *fleet) {
	var line []*gang
	for _, g := range f.gangs {
		if !f.keep(g) {
			line = append(line, g)
		}
	}
	shelves := f.newShelves()
	work := f.workLeft(line)
	for {
		best := tetrisBest(f, line, work)
		if best < 0 {
			return
		}
		shelves.pack(line[best], line[best].wanted())
		line, work = slices.Delete(line, best, best+1), slices.Delete(work, best, best+1)
	}
}

// workLeft is the device time that each of the gangs still needs, as far as can be told.
func (f *fleet) workLeft(gangs []*gang) []float64 {
	rates := f.secondsPerSample()
	typical, known := 0.0, 0.0
	work := make([]float64, len(gangs))
	for i, g := range gangs {
		if rate := rates[g.Signature]; rate > 0 {
			work[i] = rate * g.samplesLeft()
			typical += work[i]
			known++
		}
	}
	for i := range work {
		if work[i] == 0 {
			work[i] = typical / max(known, 1)
		}
	}
	return work
}

// tetrisBest is the gang with the highest score among those that fit; below zero where none fits.
func tetrisBest(f *fleet, line []*gang, work []float64) int {
	fit := func(g *gang) float64 {
		return float64(g.wanted()) / float64(f.total) * float64(f.free) / float64(f.total)
	}
	fits, sum := 0.0, 0.0
	for i, g := range line {
		fits += fit(g)
		sum += work[i]
	}
	weight := 0.0
	if sum > 0 {
		weight = fits / sum
	}
	best, score := -1, 0.0
	for i, g := range line {
		if g.wanted() > f.free {
			continue
		}
		if s := fit(g) - weight*work[i]; best < 0 || s > score {
			best, score = i, s
		}
	}
	return best
}

// MaxThroughput maximises the sum of the jobs' throughputs, each relative to its best model of device, on the devices that they ask for: Gavel's policy of
// that name (Narayanan et al., OSDI'20) with whole rounds instead of time shares. It knows the requests and the throughputs that jobs of the same signature
// have shown on each model; a model that was not seen counts as the best, so that it is tried.
type MaxThroughput struct{}

// Name is max-throughput.
func (MaxThroughput) Name() string { return "max-throughput" }

func (p MaxThroughput) decide(s State) train.Plan { return allot(s, p) }

// offerOn is a gang on a model of device.
type offerOn struct {
	gang  *gang
	shelf int
	value float64
}

func (MaxThroughput) grant(f *fleet) {
	shelves := f.newShelves()
	rates := f.ratesByModel()
	var offers []offerOn
	left := make([]int, len(shelves.all))
	for k, s := range shelves.all {
		left[k] = s.free
		for _, g := range f.gangs {
			// The value of a device-second, a little more where the gang runs already: a move costs a restart.
			value := relativeRate(rates[g.Signature], s.model) / float64(g.wanted())
			if len(g.held) > 0 && f.nodes[g.held[0].node].model == s.model {
				value *= 1.1
			}
			offers = append(offers, offerOn{g, k, value})
		}
	}
	slices.SortStableFunc(offers, func(x, y offerOn) int { return cmp.Compare(y.value, x.value) })
	taken := make(map[*gang]bool, len(f.gangs))
	var starting []offerOn
	for _, o := range offers {
		n := o.gang.wanted()
		if taken[o.gang] || n > left[o.shelf] {
			continue
		}
		taken[o.gang] = true
		left[o.shelf] -= n
		stays := width(o.gang.held) == n && f.nodes[o.gang.held[0].node].model == shelves.all[o.shelf].model
		if !stays || !f.keep(o.gang) {
			starting = append(starting, o)
		}
	}
	shelves = f.newShelves()
	for _, o := range starting {
		shelves.all[o.shelf].pack(o.gang, o.gang.wanted())
	}
}

// ratesByModel are the samples per second and device that each signature has shown on each model of device, on average.
func (f *fleet) ratesByModel() map[string]map[string]float64 {
	type sum struct{ seconds, samples float64 }
	sums := map[string]map[string]sum{}
	for _, g := range f.gangs {
		for _, s := range g.Seen {
			if sums[g.Signature] == nil {
				sums[g.Signature] = map[string]sum{}
			}
			x := sums[g.Signature][s.Model]
			sums[g.Signature][s.Model] = sum{x.seconds + s.StepSeconds, x.samples + float64(s.LocalBatch)}
		}
	}
	rates := map[string]map[string]float64{}
	for signature, models := range sums {
		rates[signature] = map[string]float64{}
		for model, x := range models {
			rates[signature][model] = x.samples / x.seconds
		}
	}
	return rates
}

// relativeRate is the throughput on a model relative to the best one seen; 1 where it was not seen.
func relativeRate(rates map[string]float64, model string) float64 {
	rate, seen := rates[model]
	if !seen {
		return 1
	}
	best := rate
	for _, other := range rates {
		best = max(best, other)
	}
	return rate / best
}
