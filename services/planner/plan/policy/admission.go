package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// serve lets the gangs trade. Higher priorities go first. While the least devices of a priority's jobs fit, these jobs
// are sure of them, and they trade for the rest together with the next priority. A priority whose least does not fit
// trades for the devices alone, and lower ones get what remains.
func serve(r *Round, b *knowledge) {
	tiers := r.Tiers()
	r.ClaimAll()
	for len(tiers) > 0 {
		m := newAllocation(r, b, tiers)
		m.clear()
		m.refine()
		m.place()
		tiers = tiers[len(m.tiers):]
	}
}

// fixed says whether a gang must not be changed for others of its priority: until it may be asked to leave, and if jobs
// leave at the end of an epoch only, when what a restart could still shorten is not worth one.
func (m *allocation) fixed(g *cluster.Gang) bool {
	if g.Held.Empty() {
		return false
	}
	near := m.Tuning.AtEpochs && g.Changeable()*g.RemainingOn(g.Held.Size(), len(g.Held.Parts)) <= m.RestartSeconds(g)
	return !g.MayMove || near
}

// admit takes in the jobs of one priority after the other.
func (m *allocation) admit(tiers [][]*cluster.Gang) {
	left := m.left()
	for t, tier := range tiers {
		var candidates []*candidate
		for _, g := range tier {
			candidates = append(candidates, m.candidate(g))
		}
		m.jobs, m.tiers = append(m.jobs, candidates...), append(m.tiers, candidates)
		fixed, rest := divide(candidates, func(b *candidate) bool { return b.fixed })
		m.oblige(fixed, left)
		m.oblige(m.overdue(rest), left)
		m.reserve(rest, left)
		m.admitUnknown(rest, left)
		if t == len(tiers)-1 {
			return
		}
		if enough := slices.Clone(left); !m.oblige(rest, enough) {
			for _, b := range rest {
				if !b.late {
					b.floor = nil
				}
			}
			return
		}
	}
}

// divide parts those to which something applies from the rest.
func divide(all []*candidate, applies func(*candidate) bool) (those, rest []*candidate) {
	for _, b := range all {
		if applies(b) {
			those = append(those, b)
		} else {
			rest = append(rest, b)
		}
	}
	return those, rest
}

// oblige promises to each job in turn the least that it can have; false where it does not fit for all.
func (m *allocation) oblige(line []*candidate, left []float64) bool {
	all := true
	for _, b := range line {
		if b.floor != nil || len(b.options) == 0 {
			continue
		}
		at := m.smallest(b, left)
		if at == nil {
			all = false
			continue
		}
		b.floor = at
		m.take(b, nil, at, left)
	}
	return all
}

// admitUnknown promises jobs without any measurement their least devices, taken from jobs that hold more than their own
// least: while a job waits, the cost of waiting stays unknown. It does so in live clusters only; kinds of jobs in
// traces have been measured before.
func (m *allocation) admitUnknown(line []*candidate, left []float64) {
	if !m.Tuning.AtEpochs {
		return
	}
	spare := slices.Clone(left)
	for _, b := range line {
		if b.gang.Held.Empty() || b.floor != nil {
			continue
		}
		if at := m.smallest(b, spare); at != nil {
			m.take(b, nil, at, spare)
		}
	}
	for _, b := range line {
		if !b.gang.Held.Empty() || b.floor != nil || !keepsBatch(b.gang) || b.gang.Source() != cluster.FromNothing {
			continue
		}
		if at := m.smallest(b, spare); at != nil {
			b.floor = at
			m.take(b, nil, at, spare)
			m.take(b, nil, at, left)
		}
	}
}

// smallest is the option with the fewest devices that fits, but no fewer than the job is due; nil if no option fits.
func (m *allocation) smallest(b *candidate, left []float64) *option {
	var best *option
	for i := range b.options {
		o := &b.options[i]
		if o.devices < b.due || !m.fits(b, nil, o, left) {
			continue
		}
		if best == nil || o.devices < best.devices || o.devices == best.devices && o.held {
			best = o
		}
	}
	return best
}

// overdue are the jobs that have waited too long, and those that would end too late for their fair share, the most
// urgent first.
func (m *allocation) overdue(candidates []*candidate) []*candidate {
	t := m.Tuning
	lateness := map[*candidate]float64{}
	var starved, unfair []*candidate
	for _, b := range candidates {
		age := m.Age(b.gang)
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
	slices.SortStableFunc(starved, func(x, y *candidate) int { return x.gang.SubmittedAt.Compare(y.gang.SubmittedAt) })
	slices.SortStableFunc(unfair, func(x, y *candidate) int { return cmp.Compare(lateness[y], lateness[x]) })
	late := append(starved, unfair...)
	for _, b := range late {
		b.late = true
	}
	return late
}

// quiet is the age of the youngest job, in seconds.
func quiet(r *Round) float64 {
	least := math.Inf(1)
	for _, g := range r.Snapshot.Gangs {
		least = math.Min(least, r.Age(g))
	}
	return least
}

// reserve takes what is reserved for jobs that cannot be obliged yet off what the others may have.
func (m *allocation) reserve(line []*candidate, left []float64) {
	for _, b := range line {
		if !b.late || b.floor != nil {
			continue
		}
		for i, kept := range m.Ledger.Reservations() {
			if kept.For != b.gang {
				continue
			}
			n := m.Ledger.KeptBy(i)
			o := option{pool: m.Finder.PoolOf[kept.Node], devices: n, watts: float64(n) * m.Nodes[kept.Node].Watts}
			for k := range left {
				if n := m.use(b, &o, k); n > 0 {
					left[k], m.limits[k].left = max(left[k]-n, 0), max(m.limits[k].left-n, 0)
				}
			}
		}
	}
}

// unfairness is the finish-time fairness (Themis, NSDI'20) that a job would reach if it held its fair share from now
// on, and that share: its whole time in the cluster over the time that it would have taken alone on the share.
func (m *allocation) unfairness(b *candidate, age float64) (share int, ratio float64) {
	jobs := max(len(m.Candidates), 1)
	fair := (m.Total + jobs - 1) / jobs
	var on *option
	for i := range b.options {
		if o := &b.options[i]; o.devices <= fair && (on == nil || o.devices > on.devices) {
			on = o
		}
	}
	if on == nil {
		return 0, 0
	}
	alone := on.left / math.Max(partLeft(b.gang), 1e-6)
	return on.devices, (age + on.left) / math.Max(alone, 1)
}

// partLeft is the part of the training that is still ahead.
func partLeft(g *cluster.Gang) float64 {
	if keepsBatch(g) {
		return g.Ahead()
	}
	total, left := work(g)
	return left / total
}
