package plan

import (
	"cmp"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/unit"
	sharing "github.com/switchyard-dl/switchyard/services/planner/share"
)

// lodgeAll finds places for all jobs but those that were served otherwise. Whoever found none asks again when others have: a gang that one job holds up is not held
// up any more by another one on another device, and three may be known to get on of whom two are not.
func (l *lodgings) lodgeAll(served map[*lodger]bool) {
	for again := true; again; clear(l.refused) {
		again = false
		for _, one := range l.lodgers {
			if served[one] || one.at.somewhere() {
				continue
			}
			l.lodge(one)
			again = again || one.at.somewhere()
		}
	}
}

// lodge finds a job that has no device one beside others, or several: of those that have memory for it, where it adds most to the progress of all. Of equals
// it takes the one with the least memory left. While a job starves that could have the device for itself, nobody new comes to it.
func (l *lodgings) lodge(one *lodger) {
	if one.at.somewhere() || one.silent && one.held.somewhere() {
		return
	}
	if one.moves && l.fits(one, one.held) { // there was no device for it
		l.seat(one, one.held)
		return
	}
	alike := l.likeness(one)
	waits := one.Planned == nil && one.Running == nil // else its part may be another one than theirs
	if waits && l.refused[alike] {
		return
	}
	if at := l.choose(one); at.somewhere() {
		l.seat(one, at)
		maps.DeleteFunc(l.keeper.kept, func(_ spot, j *Job) bool { return j.ID == one.ID })
	} else if waits {
		l.refused[alike] = true
	}
}

// likeness is what jobs that wait have in common if there is a place beside others for all of them or for none.
type likeness struct {
	kind     curve.Kind
	devices  int
	priority int
	memory   unit.Bytes
	tenant   string
	wish     int
	starves  bool
}

func (l *lodgings) likeness(one *lodger) likeness {
	starves := slices.ContainsFunc(l.starving, func(j *Job) bool { return j.ID == one.ID })
	return likeness{one.ofKind(), one.min, one.Priority, one.memory, one.Spec.Tenant, one.wish, starves}
}

func (l *lodgings) choose(one *lodger) spots {
	fitting := slices.DeleteFunc(l.rooms(one), func(at spots) bool { return l.reserved(one, at) })
	left := func(at spots) unit.Bytes {
		least := l.lodgingAt(at[0]).left
		for _, d := range at[1:] {
			least = min(least, l.lodgingAt(d).left)
		}
		return least
	}
	slices.SortStableFunc(fitting, func(x, y spots) int { return cmp.Compare(left(x), left(y)) })
	places := make([]sharing.Place, len(fitting))
	for i, at := range fitting {
		places[i] = sharing.Place{Model: l.interference(at[0]), Newcomer: l.tenant(one, at), Tenants: l.tenants(l.company(at))}
	}
	if i := sharing.Choose(places); i >= 0 {
		return fitting[i]
	}
	return nil
}

// rooms are the devices that have memory for a job with as many as it needs at least. Of the sets that one host has these are tried: those of the jobs that are
// there, and of the devices that no smaller gang has the ones on which the job would be fastest.
func (l *lodgings) rooms(one *lodger) []spots {
	var found []spots
	add := func(at spots) {
		speaks := at.within(one.held) || !slices.Contains(l.state.Silent, l.board.nodes[at[0].node].id)
		if speaks && l.open[at[0].node] && l.fits(one, at) {
			found = append(found, at)
		}
	}
	for _, here := range l.shared {
		if one.min == 1 {
			add(spots{here.spot})
			continue
		}
		if here.spot != here.host.at[0] {
			continue
		}
		for _, of := range gangs(l.company(here.host.at), one.min) {
			if len(of) > one.min {
				of = l.fastest(one, of)
			}
			if len(of) == one.min {
				add(of)
			}
		}
	}
	return found
}

// gangs are the sets of at least so many devices that jobs have.
func gangs(jobs []*lodger, least int) []spots {
	var sets []spots
	for _, one := range jobs {
		if len(one.at) >= least && !slices.ContainsFunc(sets, func(s spots) bool { return slices.Equal(s, one.at) }) {
			sets = append(sets, one.at)
		}
	}
	return sets
}

// fastest are as many of some devices as a job needs on which it would be fastest, of those on which it fits and that no gang has that is smaller than these.
func (l *lodgings) fastest(one *lodger, of spots) spots {
	type option struct {
		spot
		rate float64
	}
	var free []option
	for _, d := range of {
		here, alone := l.lodgingAt(d), spots{d}
		if !l.fits(one, alone) || l.reserved(one, alone) || slices.ContainsFunc(here.jobs, func(o *lodger) bool { return len(o.at) > 1 && len(o.at) < len(of) }) {
			continue
		}
		tenants := append(l.tenants(here.jobs), l.tenant(one, alone))
		rates, _ := sharing.Rates(l.interference(d), tenants)
		free = append(free, option{d, rates[len(rates)-1]})
	}
	slices.SortStableFunc(free, func(x, y option) int { return cmp.Compare(y.rate, x.rate) })
	var chosen spots
	for _, o := range free[:min(len(free), one.min)] {
		chosen = append(chosen, o.spot)
	}
	slices.SortFunc(chosen, compareSpots)
	return chosen
}

// company are all jobs on the devices of the hosts that have some of these, each once.
func (l *lodgings) company(at spots) []*lodger {
	var jobs []*lodger
	for _, d := range at {
		here := l.lodgingAt(d)
		if here == nil || slices.Contains(jobs, here.host) {
			continue
		}
		for _, of := range here.host.at {
			for _, one := range l.lodgingAt(of).jobs {
				if !slices.Contains(jobs, one) {
					jobs = append(jobs, one)
				}
			}
		}
	}
	return jobs
}

// interference is what is known of a device.
func (l *lodgings) interference(at spot) *curve.Interference {
	d := l.device(at)
	of := device{d.Type(), d.Driver}
	if l.known[of] == nil {
		known := l.state.Interference[curve.MeetingsKey(d)]
		if known == nil {
			known = curve.NewInterference(d.Driver, nil)
		}
		l.known[of] = known
	}
	return l.known[of]
}

// tenant is a job on devices in the eyes of whoever weighs progress. Its weight is its priority, 1 at the usual one, times its devices: a large job that is
// held up loses the work of all of them.
func (l *lodgings) tenant(one *lodger, at spots) sharing.Tenant {
	const usual, least = 50, 5
	t := sharing.Tenant{
		Kind: one.ofKind().On(len(at)), Weight: float64(max(one.Priority, least)) / usual * float64(len(at)),
		Memory: float64(l.riderPart(one, at)) / float64(max(l.device(at[0]).Memory, 1)),
	}
	for _, d := range at {
		t.On = append(t.On, d.device)
	}
	return t
}

// ofKind is the job's kind on one device, made when first asked for: it is a digest.
func (one *lodger) ofKind() curve.Kind {
	if one.kind == nil {
		one.kind = new(curve.KindOf(one.Spec))
	}
	return *one.kind
}

// tenants are jobs where they lodge.
func (l *lodgings) tenants(jobs []*lodger) []sharing.Tenant {
	all := make([]sharing.Tenant, len(jobs))
	for i, one := range jobs {
		all[i] = l.tenant(one, one.at)
	}
	return all
}

// part has jobs leave that were measured beside each other and do less together than one of them alone. The one of the least weight leaves, of equals the
// one that came last. What is known of the two keeps them from being put together again.
func (l *lodgings) part() {
	var groups [][]*lodger // on the devices of their first
	for _, one := range l.bySize() {
		if !one.held.somewhere() {
			continue
		}
		i := slices.IndexFunc(groups, func(jobs []*lodger) bool { return one.held.meets(jobs[0].held) })
		if i < 0 {
			groups = append(groups, []*lodger{one})
		} else {
			groups[i] = append(groups[i], one)
		}
	}
	for _, jobs := range groups {
		for len(jobs) > 1 {
			one := l.leaver(jobs)
			if one == nil {
				break
			}
			one.leaves, one.left, one.held = true, one.held, nil
			jobs = slices.DeleteFunc(jobs, func(o *lodger) bool { return o == one })
		}
	}
}

// getOn says whether a job may stay on its devices with whoever stands for them now: it need not where another has come.
func (l *lodgings) getOn(one *lodger) bool {
	if host := l.lodgingAt(one.held[0]).host; host.promised == nil && one.held.within(host.held) {
		return true
	}
	tenants := append(l.tenants(l.company(one.held)), l.tenant(one, one.held))
	return !sharing.Parted(l.interference(one.held[0]), tenants)
}

// leaver is which of the jobs that meet on devices leaves; nil where they stay together, or none can be asked. On several devices it is one of those where
// somebody crawls, or else the largest job is slowest; where none of these can be asked, of those where others are.
func (l *lodgings) leaver(jobs []*lodger) *lodger {
	tenants := make([]sharing.Tenant, len(jobs))
	for i, one := range jobs {
		tenants[i] = l.tenant(one, one.held)
	}
	known, node := l.interference(jobs[0].held[0]), jobs[0].held[0].node
	if !sharing.Parted(known, tenants) {
		return nil
	}
	for _, device := range sharing.Brakes(known, tenants) {
		var best *lodger
		weight := 0.0
		for i, one := range jobs {
			if !one.held.has(spot{node, device}) || !l.canMove(one) {
				continue
			}
			if w := tenants[i].Weight; best == nil || w < weight || w == weight && (one.rode() || !best.rode()) {
				best, weight = one, w
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

// canMove says whether a job may be asked to leave its device for the sake of speed.
func (l *lodgings) canMove(one *lodger) bool {
	r, t := one.Running, l.board.tuning
	if r == nil {
		return true
	}
	return r.Spoke && !r.StopPending && r.Epochs >= 1 && r.Seconds >= t.MinRescaleSeconds && one.RecentRestarts < t.MaxRestartsPerHour
}

// moveOut lets riders stand before the policy for devices that nobody else waits for, those first that gain most from it: the time that they and those whom
// they leave save must be worth the restart.
func (l *lodgings) moveOut(idle int) {
	type mover struct {
		*lodger
		gain float64
	}
	var movers []mover
	for _, one := range l.lodgers {
		if one.host == nil || !slices.Equal(one.held, one.at) || one.silent || !l.canMove(one) {
			continue
		}
		if gain := l.gainApart(one); gain > 0 {
			movers = append(movers, mover{one, gain})
		}
	}
	slices.SortStableFunc(movers, func(x, y mover) int { return cmp.Compare(y.gain, x.gain) })
	for _, m := range movers {
		if idle >= len(m.at) {
			idle -= len(m.at)
			m.moves = true
			l.unseat(m.lodger)
		}
	}
}

// gainApart is the progress, in seconds of a job of weight 1 alone, that a rider on devices of its own adds by the end of its training, less the restart
// and what a change must save beyond it.
func (l *lodgings) gainApart(one *lodger) float64 {
	jobs := l.company(one.at)
	tenants, i := l.tenants(jobs), slices.Index(jobs, one)
	weight, t := tenants[i].Weight, l.board.tuning
	faster := sharing.Apart(l.interference(one.at[0]), tenants, i) - t.Hysteresis*weight
	price := cmp.Or(one.RestartSeconds, t.RestartSeconds)
	return faster*one.remaining(len(one.at)) - weight*price
}
