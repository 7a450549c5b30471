package plan

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// settle begins a round: hosts have their devices, and whoever lodged with one of them before stays as long as there is memory.
func (l *lodgings) settle(hosts map[*lodger]spots) {
	l.shared, l.refused = nil, map[likeness]bool{}
	l.keeper.clear()
	for _, one := range l.lodgers {
		one.at, one.host, one.part = hosts[one], nil, 0
		if !one.at.somewhere() {
			continue
		}
		one.part = l.partAt(one, one.at)
		for _, at := range one.at {
			here := &lodging{spot: at, host: one, jobs: []*lodger{one}}
			if one.part > 0 {
				here.left = l.device(at).Memory - one.part
			}
			l.shared = append(l.shared, here)
		}
	}
	slices.SortFunc(l.shared, func(x, y *lodging) int { return compareSpots(x.spot, y.spot) })
	for _, one := range l.lodgers {
		if !one.at.somewhere() && one.held.somewhere() && l.fits(one, one.held) && l.getOn(one) {
			l.seat(one, one.held)
		}
	}
	l.keep()
}

// lodgingAt gives a device as it is shared in this round; nil where no job that may share stands for it.
func (l *lodgings) lodgingAt(at spot) *lodging {
	i, found := slices.BinarySearchFunc(l.shared, at, func(x *lodging, at spot) int { return compareSpots(x.spot, at) })
	if !found {
		return nil
	}
	return l.shared[i]
}

// fits says whether a job may lodge on devices, all of them of one host: a fault of one may reach the other, so they are of one tenant.
func (l *lodgings) fits(one *lodger, at spots) bool {
	first, part := l.lodgingAt(at[0]), l.riderPart(one, at)
	if first == nil || first.host.Spec.Tenant != one.Spec.Tenant || part == 0 {
		return false
	}
	for _, d := range at {
		here := l.lodgingAt(d)
		if here == nil || here.host != first.host || part > l.leftFor(one, here) {
			return false
		}
		if slices.ContainsFunc(here.jobs, func(o *lodger) bool { return !o.at.within(at) && !at.within(o.at) }) {
			return false
		}
	}
	return at.within(one.held) || l.board.nodes[at[0].node].traits.grant(one.wish)
}

// seat has a job ride on devices, unseat is the reverse of it.
func (l *lodgings) seat(one *lodger, at spots) {
	one.at, one.part, one.host = at, l.riderPart(one, at), l.lodgingAt(at[0]).host
	for _, d := range at {
		here := l.lodgingAt(d)
		here.jobs, here.left = append(here.jobs, one), here.left-one.part
	}
}

func (l *lodgings) unseat(one *lodger) {
	for _, d := range one.at {
		here := l.lodgingAt(d)
		here.jobs, here.left = slices.DeleteFunc(here.jobs, func(o *lodger) bool { return o == one }), here.left+one.part
	}
	one.at, one.part, one.host = nil, 0, nil
}

// partAt is how much of each of its devices a job has: what it runs with, else what it needs; 0 where it has them as a whole.
func (l *lodgings) partAt(one *lodger, at spots) unit.Bytes {
	if r := one.Running; r != nil && !r.StopPending && slices.Equal(l.find(&r.Holding), at) && (!slices.Equal(one.outgrown, at) || one.silent) {
		return r.Memory
	}
	return l.share(one.memory, at)
}

// riderPart is how much of each device a job has beside another: it does not go on with the whole of it.
func (l *lodgings) riderPart(one *lodger, at spots) unit.Bytes {
	return cmp.Or(l.partAt(one, at), l.share(one.memory, at))
}

// share is the least part with so much memory that can be accounted for on each of some devices; 0 where they cannot be shared: not by anybody, or not
// together since they are of several types.
func (l *lodgings) share(memory unit.Bytes, at spots) unit.Bytes {
	first := l.device(at[0])
	if !l.open[at[0].node] {
		return 0
	}
	for before := unit.Bytes(-1); before != memory; { // a device's part may be none of another one's
		before = memory
		for _, d := range at {
			device := l.device(d)
			if device.Type() != first.Type() || device.Driver != first.Driver {
				return 0
			}
			memory = device.Share(memory)
		}
	}
	return memory
}

func (l *lodgings) device(at spot) *train.Device { return &l.board.nodes[at.node].devices[at.device] }
