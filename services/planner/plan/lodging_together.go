package plan

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/unit"
	sharing "github.com/switchyard-dl/switchyard/services/planner/share"
)

// lodge finds a job that has no device one beside others: of those that have memory for it, where it adds most to the progress of all. Of equals it takes
// the one with the least memory left. While a job starves that could have the device for itself, nobody new comes to it.
func (l *lodgings) lodge(one *lodger) {
	if one.at.somewhere() || one.silent && one.held.somewhere() {
		return
	}
	alike := l.likeness(one)
	if l.refused[alike] && one.Planned == nil && one.Running == nil {
		return
	}
	if here := l.choose(one); here != nil {
		here.take(one, l.riderPart(one, here.spot))
	} else {
		l.refused[alike] = true
	}
}

// likeness is what jobs that wait have in common if there is a place beside others for all of them or for none.
type likeness struct {
	kind     curve.Kind
	priority int
	memory   unit.Bytes
	tenant   string
	wish     int
	starves  bool
}

func (l *lodgings) likeness(one *lodger) likeness {
	starves := slices.ContainsFunc(l.starving, func(j *Job) bool { return j.ID == one.ID })
	return likeness{one.ofKind(), one.Priority, one.memory, one.Spec.Tenant, one.wish, starves}
}

func (l *lodgings) choose(one *lodger) *lodging {
	var fitting []*lodging
	for _, here := range l.shared {
		if l.open[here.node] && l.fits(one, here) && !l.reserved(one, here) {
			fitting = append(fitting, here)
		}
	}
	slices.SortStableFunc(fitting, func(x, y *lodging) int { return cmp.Compare(x.left, y.left) })
	places := make([]sharing.Place, len(fitting))
	for i, here := range fitting {
		places[i] = sharing.Place{Model: l.interference(here.spot), Newcomer: l.tenant(one, here.spot), Tenants: l.tenants(here.jobs, here.spot)}
	}
	if i := sharing.Choose(places); i >= 0 {
		return fitting[i]
	}
	return nil
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

// tenant is a job in the eyes of whoever weighs progress: its priority is its weight, 1 at the usual one.
func (l *lodgings) tenant(one *lodger, at spot) sharing.Tenant {
	const usual, least = 50, 5
	return sharing.Tenant{
		Kind: one.ofKind(), Weight: float64(max(one.Priority, least)) / usual,
		Memory: float64(l.riderPart(one, at)) / float64(max(l.device(at).Memory, 1)),
	}
}

// ofKind is the job's kind, made when first asked for: it is a digest.
func (one *lodger) ofKind() curve.Kind {
	if one.kind == nil {
		one.kind = new(curve.KindOf(one.Spec))
	}
	return *one.kind
}

func (l *lodgings) tenants(jobs []*lodger, at spot) []sharing.Tenant {
	all := make([]sharing.Tenant, len(jobs))
	for i, one := range jobs {
		all[i] = l.tenant(one, at)
	}
	return all
}

// part has jobs leave that were measured beside each other and do less together than one of them alone. The one of the least weight leaves, of equals the
// one that came last. What is known of the two keeps them from being put together again.
func (l *lodgings) part() {
	held := map[spot][]*lodger{}
	for _, one := range l.lodgers {
		if one.held.somewhere() {
			held[one.held] = append(held[one.held], one)
		}
	}
	for at, jobs := range held {
		for len(jobs) > 1 {
			i := l.leaver(jobs, at)
			if i < 0 {
				break
			}
			jobs[i].leaves, jobs[i].left, jobs[i].held = true, at, spot{node: nowhere}
			jobs = slices.Delete(jobs, i, i+1)
		}
	}
}

// getOn says whether a job may stay on its device with whoever stands for that now: it need not where another has come.
func (l *lodgings) getOn(one *lodger, here *lodging) bool {
	return here.host.held == one.held || !sharing.Parted(l.interference(here.spot), l.tenants(append(slices.Clone(here.jobs), one), here.spot))
}

// leaver is which of the jobs on a device leaves; -1 where they stay together, or none can be asked.
func (l *lodgings) leaver(jobs []*lodger, at spot) int {
	tenants := l.tenants(jobs, at)
	if !sharing.Parted(l.interference(at), tenants) {
		return -1
	}
	best := -1
	for i, one := range jobs {
		if !l.canMove(one) {
			continue
		}
		if best < 0 || tenants[i].Weight < tenants[best].Weight || tenants[i].Weight == tenants[best].Weight && (one.rode() || !jobs[best].rode()) {
			best = i
		}
	}
	return best
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
		if one.host == nil || one.held != one.at || one.silent || !l.canMove(one) {
			continue
		}
		if gain := l.gainApart(one); gain > 0 {
			movers = append(movers, mover{one, gain})
		}
	}
	slices.SortStableFunc(movers, func(x, y mover) int { return cmp.Compare(y.gain, x.gain) })
	for _, m := range movers[:min(len(movers), max(idle, 0))] {
		m.moves = true
		l.lodgingAt(m.at).release(m.lodger)
	}
}

// gainApart is the progress, in seconds of a job of weight 1 alone, that a rider on a device of its own adds by the end of its training, less the restart
// and what a change must save beyond it.
func (l *lodgings) gainApart(one *lodger) float64 {
	jobs := l.lodgingAt(one.at).jobs
	tenants, i := l.tenants(jobs, one.at), slices.Index(jobs, one)
	weight, t := tenants[i].Weight, l.board.tuning
	faster := sharing.Apart(l.interference(one.at), tenants, i) - t.Hysteresis*weight
	price := cmp.Or(one.RestartSeconds, t.RestartSeconds)
	return faster*one.remaining(1) - weight*price
}
