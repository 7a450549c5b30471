package plan

import (
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// constrain settles what each gang holds, its least and most devices, and whether it may be moved. A wish of an
// experiment is such a constraint: the gang keeps the size that it has, less what it is to give up, and gets more in
// adjust if that costs nobody anything.
func (d *decision) constrain() {
	for _, g := range d.Gangs {
		d.fixSize(g)
	}
	d.FindHoldings()
	d.Predict()
	for _, g := range d.Gangs {
		g.MayMove, g.Stay = d.mayMove(g)
		g.Pinned = d.pinned(g)
	}
	d.NoNews = d.memory.News != 0 && d.memory.News == d.fingerprint(d.planned)
}

// fixSize pins a gang whose experiment chooses its size.
func (d *decision) fixSize(g *cluster.Gang) {
	if g.WantsDevices <= 0 || d.plain {
		return
	}
	g.Wanted = g.WantsDevices
	n := d.leastWanted(g)
	switch {
	case g.Stuck(): // it must not be asked to leave
		n = g.Running.Size()
	case g.Planned != nil:
		n = min(g.Planned.Size(), g.Wanted)
	}
	g.Least, g.Most = n, n
}

// leastWanted is with how many devices a gang whose experiment chooses its size begins if no more are free.
func (d *decision) leastWanted(g *cluster.Gang) int {
	return min(g.WantsDevices, max(g.Spec.MinDevices, 1))
}

// pinned says whether a gang keeps all that it holds: it must not be asked to leave, or nobody may come back to where
// it is.
func (d *decision) pinned(g *cluster.Gang) bool {
	return !g.Held.Empty() && (g.Stuck() || d.OnClosed(g.Held))
}

func whyPinned(g *cluster.Gang) cluster.Stay {
	if g.Stuck() {
		return cluster.StaySilent
	}
	return cluster.StayClosed
}

// mayMove says whether a gang may be resized or moved for the sake of speed. If jobs leave at any time, that is
// whenever it holds something.
func (d *decision) mayMove(g *cluster.Gang) (bool, cluster.Stay) {
	r := g.Running
	switch {
	case g.Held.Empty():
		return false, cluster.StayNot
	case d.pinned(g):
		return false, whyPinned(g)
	case !d.Tuning.AtEpochs && (r == nil || g.Shed):
		return true, cluster.StayNot
	case r == nil || r.StopPending || g.Planned == nil || !r.Same(*g.Planned) || g.Held.Size() != g.Planned.Size():
		return false, cluster.StayApplying
	case d.Tuning.AtEpochs && (!g.Measured() || r.Seconds < d.Tuning.MinRescaleSeconds):
		return false, cluster.StayYoung
	case g.RecentRestarts >= d.Tuning.MaxRestartsPerHour:
		return false, cluster.StayRestarts
	}
	return true, cluster.StayNot
}

// group has gangs that share devices stay together: a primary is as important as the most important of its guests, is
// not moved before each of them has finished an epoch beside it, and stays if one of them must not be asked to leave.
func (d *decision) group() {
	for _, g := range d.Gangs {
		g.Level = g.Priority
		if g.Stay == cluster.StayCoRunner {
			g.MayMove, g.Stay = d.mayMove(g)
			g.Beside = nil
		}
		g.Pinned = d.pinned(g)
	}
	for _, g := range d.Gangs {
		for _, guest := range g.Guests {
			g.Level = max(g.Level, guest.Priority)
			young := !guest.Held.Empty() && !guest.Measured()
			if g.MayMove && (young || g.Level > g.Priority) {
				g.MayMove, g.Stay, g.Beside = false, cluster.StayCoRunner, guest
			}
		}
		members := append([]*cluster.Gang{g}, g.Guests...)
		if slices.ContainsFunc(members, func(o *cluster.Gang) bool { return o.Stuck() && !o.Held.Empty() }) {
			for _, o := range members {
				o.Pinned = !o.Held.Empty()
			}
		}
	}
}
