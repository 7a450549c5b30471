package plan

import (
	"cmp"
	"math"
	"slices"
)

// serve lets the gangs trade. Higher priorities go first: as long as the least that their jobs can run on fits, they are sure of it, and what is left goes
// to whom it is worth most, of all of them and of the next priority. Where it does not fit, that priority trades for the devices alone and
// lower ones get what remains.
func (f *fleet) serve(b *book) {
	tiers := f.tiers()
	for _, g := range f.gangs {
		f.claim(g, 1)
	}
	for len(tiers) > 0 {
		m := newMarket(f, b, tiers)
		m.clear()
		m.refine()
		m.place()
		tiers = tiers[len(m.tiers):]
	}
}

// tiers are the gangs by priority, the highest first.
func (f *fleet) tiers() [][]*gang {
	line := slices.Clone(f.gangs)
	slices.SortStableFunc(line, func(x, y *gang) int { return cmp.Compare(y.Priority, x.Priority) })
	var tiers [][]*gang
	for i, g := range line {
		if i == 0 || line[i-1].Priority != g.Priority {
			tiers = append(tiers, nil)
		}
		last := len(tiers) - 1
		tiers[last] = append(tiers[last], g)
	}
	return tiers
}

// claim marks what a gang holds as claimed, or with -1 as not claimed any more: jobs of a higher priority rather take other devices.
func (f *fleet) claim(g *gang, times int) {
	for _, s := range g.held {
		f.nodes[s.node].claimed += times * s.devices
	}
}

// unclaimed are the free devices that nobody holds who was not served yet.
func (n *slot) unclaimed() int { return max(n.free-n.claimed, 0) }

// fixed says whether a gang must not be changed for others of its priority: where jobs leave at an epoch's end only, that is until they can be asked to
// leave, and when what a restart could still shorten is not worth one.
func (f *fleet) fixed(g *gang) bool {
	if !f.state.Tuning.AtEpochs || len(g.held) == 0 {
		return false
	}
	return !g.rescalable || g.changeable()*g.remainingOn(width(g.held), len(g.held)) <= f.board.restartSeconds(g.candidate)
}

// admit takes in the jobs of one priority after the other.
func (m *market) admit(tiers [][]*gang) {
	left := m.left()
	for t, tier := range tiers {
		var bidders []*bidder
		for _, g := range tier {
			bidders = append(bidders, m.bid(g))
		}
		m.jobs, m.tiers = append(m.jobs, bidders...), append(m.tiers, bidders)
		var fixed, rest []*bidder
		for _, b := range bidders {
			if b.fixed {
				fixed = append(fixed, b)
			} else {
				rest = append(rest, b)
			}
		}
		m.oblige(fixed, left)
		m.oblige(m.overdue(rest), left)
		m.welcome(rest, left)
		if t == len(tiers)-1 {
			return
		}
		if enough := slices.Clone(left); !m.oblige(rest, enough) {
			for _, b := range rest {
				if !b.late {
					b.floor = nowhere
				}
			}
			return
		}
	}
}

// oblige promises to each job in turn the least that it can have; false where it does not fit for all.
func (m *market) oblige(line []*bidder, left []float64) bool {
	all := true
	for _, b := range line {
		if b.floor != nowhere || len(b.options) == 0 {
			continue
		}
		at := m.smallest(b, left)
		if at == nowhere {
			all = false
			continue
		}
		b.floor = at
		m.take(b, nowhere, at, left)
	}
	return all
}

// welcome promises jobs of which nothing is known yet the least that they can run on, out of what others hold beyond their own least: as long as they wait
// nobody can tell what waiting costs them. Only for jobs that come by themselves; those of traces have kinds that have taught before.
func (m *market) welcome(line []*bidder, left []float64) {
	if !m.fleet.state.Tuning.AtEpochs {
		return
	}
	spare := slices.Clone(left)
	for _, b := range line {
		if len(b.gang.held) == 0 || b.floor != nowhere {
			continue
		}
		if at := m.smallest(b, spare); at != nowhere {
			m.take(b, nowhere, at, spare)
		}
	}
	for _, b := range line {
		if len(b.gang.held) > 0 || b.floor != nowhere || b.gang.predicted.source != fromNothing {
			continue
		}
		if at := m.smallest(b, spare); at != nowhere {
			b.floor = at
			m.take(b, nowhere, at, spare)
			m.take(b, nowhere, at, left)
		}
	}
}

// smallest is the option with the fewest devices that fits, but no fewer than the job is due; nowhere where there is none.
func (m *market) smallest(b *bidder, left []float64) int {
	best := nowhere
	for i := range b.options {
		o := &b.options[i]
		if o.devices < b.due || !m.fits(b, nowhere, i, left) {
			continue
		}
		if best == nowhere || o.devices < b.options[best].devices || o.devices == b.options[best].devices && o.held {
			best = i
		}
	}
	return best
}

// overdue are the jobs that have waited too long, and those that would end too late for their fair share, the most urgent first.
func (m *market) overdue(bidders []*bidder) []*bidder {
	t := m.fleet.state.Tuning
	lateness := map[*bidder]float64{}
	var starved, unfair []*bidder
	for _, b := range bidders {
		age := m.fleet.age(b.gang)
		if age-b.gang.RunSeconds > t.StarvationSeconds {
			starved = append(starved, b)
			continue
		}
		if t.FairnessBound <= 0 {
			continue
		}
		if share, late := m.unfairness(b, age); late > t.FairnessBound {
			unfair, lateness[b], b.due = append(unfair, b), late, share
		}
	}
	slices.SortStableFunc(starved, func(x, y *bidder) int { return x.gang.SubmittedAt.Compare(y.gang.SubmittedAt) })
	slices.SortStableFunc(unfair, func(x, y *bidder) int { return cmp.Compare(lateness[y], lateness[x]) })
	late := append(starved, unfair...)
	for _, b := range late {
		b.late = true
	}
	return late
}

// age is the time since a job was submitted, in seconds.
func (f *fleet) age(g *gang) float64 {
	return math.Max(f.state.Now.Sub(g.SubmittedAt).Seconds(), 0)
}

// quiet is the age of the youngest job.
func (f *fleet) quiet() float64 {
	least := math.Inf(1)
	for _, g := range slices.Concat(f.pinned, f.gangs) {
		least = math.Min(least, f.age(g))
	}
	return least
}

// unfairness is the finish-time fairness (Themis, NSDI'20) that a job would reach if it held its fair share from now on, and that share: its whole time
// in the cluster over the time that it would have taken alone on the share.
func (m *market) unfairness(b *bidder, age float64) (share int, ratio float64) {
	jobs := max(len(m.fleet.gangs), 1)
	fair := (m.fleet.total + jobs - 1) / jobs
	at := nowhere
	for i := range b.options {
		if n := b.options[i].devices; n <= fair && (at == nowhere || n > b.options[at].devices) {
			at = i
		}
	}
	if at == nowhere {
		return 0, 0
	}
	left := b.options[at].left
	alone := left / math.Max(b.gang.partLeft(), 1e-6)
	return b.options[at].devices, (age + left) / math.Max(alone, 1)
}

// partLeft is the part of the training that is still ahead.
func (g *gang) partLeft() float64 {
	if g.fixedBatch() {
		return g.ahead()
	}
	total, left := g.work()
	return left / total
}
