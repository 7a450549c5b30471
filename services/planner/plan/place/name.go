package place

import (
	"iter"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// Name names the devices of gangs that were given numbers of them: as many as possible of the gang's own, then free
// ones, then devices that others are leaving. Slow devices are replaced before newcomers get free ones, since a device
// is slow only for the gang that found it so.
func Name(s *cluster.Snapshot) {
	n := naming{s: s, taken: map[int][]bool{}}
	for _, g := range s.Gangs {
		if !g.Got.Empty() && !s.Ledger.IsNamed(g) {
			n.gangs, n.chosen = append(n.gangs, g), append(n.chosen, g.Got)
		}
	}
	if len(n.gangs) == 0 {
		return
	}
	for i, g := range n.gangs {
		n.chosen[i] = n.keep(g)
	}
	n.replaceSlow()
	for i := range n.gangs {
		for k := range n.chosen[i].Parts {
			part := &n.chosen[i].Parts[k]
			complete(s, part, n.marks(part.Node))
		}
	}
	n.replaceSlow()
	for i, g := range n.gangs {
		s.Ledger.Name(g, n.chosen[i])
	}
}

type naming struct {
	s      *cluster.Snapshot
	gangs  []*cluster.Gang
	chosen []cluster.Placement
	// taken are the devices that are in use, by node.
	taken map[int][]bool
}

func (n *naming) marks(node int) []bool {
	if n.taken[node] == nil {
		n.taken[node] = given(n.s, node)
	}
	return n.taken[node]
}

// given marks the devices of a node that some gang was given.
func given(s *cluster.Snapshot, node int) []bool {
	marks := make([]bool, len(s.Nodes[node].Devices))
	for d := range marks {
		marks[d] = s.Ledger.Holders(cluster.Spot{Node: node, Device: d}) > 0
	}
	return marks
}

// vacant yields the devices of a node that are not taken, first those that no attempt has to leave.
func vacant(s *cluster.Snapshot, node int, taken []bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, leaving := range []bool{false, true} {
			for d := range taken {
				if !taken[d] && s.Busy(node, d) == leaving && !yield(d) {
					return
				}
			}
		}
	}
}

// complete adds vacant devices to a part until there are enough.
func complete(s *cluster.Snapshot, part *cluster.Part, taken []bool) {
	for d := range vacant(s, part.Node, taken) {
		if len(part.Devices) >= part.Count {
			break
		}
		taken[d], part.Devices = true, append(part.Devices, d)
	}
	slices.Sort(part.Devices)
}

// keep names the devices that a gang had before.
func (n *naming) keep(g *cluster.Gang) cluster.Placement {
	p := cluster.Placement{Memory: g.Got.Memory, Parts: slices.Clone(g.Got.Parts)}
	had := g.Former
	if g.Got.SameShape(g.Held) {
		had = g.Held
	}
	for i := range p.Parts {
		part := &p.Parts[i]
		part.Devices = make([]int, 0, part.Count)
		taken := n.marks(part.Node)
		for _, d := range had.DevicesOn(part.Node) {
			if len(part.Devices) < part.Count && !taken[d] {
				taken[d], part.Devices = true, append(part.Devices, d)
			}
		}
	}
	return p
}

// replaceSlow gives gangs other devices of their node in place of slow ones, if such are free and the restart is worth
// it. A gang that was just given a slow one, or restarts anyway, gets another in any case. A gang is moved for at most
// train.MaxStragglers workers, since no more are reported of it.
func (n *naming) replaceSlow() {
	for i, g := range n.gangs {
		if len(g.Slow) == 0 || len(g.Guests) > 0 {
			continue
		}
		for k := range n.chosen[i].Parts {
			n.swapSlow(g, &n.chosen[i].Parts[k], n.chosen[i].Size())
		}
	}
}

func (n *naming) swapSlow(g *cluster.Gang, part *cluster.Part, size int) {
	taken := n.marks(part.Node)
	for _, slow := range g.Slow {
		at := slowAt(n.s, *part, slow)
		if at < 0 {
			continue
		}
		old := part.Devices[at]
		held := slices.Contains(g.Former.DevicesOn(part.Node), old)
		free, found := spare(n.s, g, part.Node, taken)
		if !found || held && size == g.Former.Size() && !worthReplacing(n.s, g, slow, size) {
			continue
		}
		taken[free], taken[old], part.Devices[at] = true, false, free
		if held {
			g.Notes.Replaced = append(g.Notes.Replaced, cluster.Replacement{Slow: slow, With: string(n.s.Nodes[part.Node].Devices[free].ID)})
		}
	}
	slices.Sort(part.Devices)
}

// slowAt is the place in a part of the device that was slow; below zero if the part does not have it.
func slowAt(s *cluster.Snapshot, part cluster.Part, slow train.Straggler) int {
	n := &s.Nodes[part.Node]
	return slices.IndexFunc(part.Devices, func(d int) bool { return slow.Node == n.ID && slow.Device == n.Devices[d].ID })
}

// spare returns a vacant device of a node on which the gang was not slow, or false.
func spare(s *cluster.Snapshot, g *cluster.Gang, node int, taken []bool) (device int, found bool) {
	for d := range vacant(s, node, taken) {
		if !g.IsSlow(&s.Nodes[node], d) {
			return d, true
		}
	}
	return 0, false
}

// worthReplacing says whether a restart without a slow worker pays. If workers wait for each other, the whole step
// takes as long as the slowest; else only its own share of the steps comes late.
func worthReplacing(s *cluster.Snapshot, g *cluster.Gang, slow train.Straggler, workers int) bool {
	if !g.MayMove || s.NoNews || !(slow.Slowdown > 1) {
		return false
	}
	left := s.Expected(g, g.Former)
	saved := g.Changeable() * left * (1 - 1/slow.Slowdown)
	if g.Spec.SpeedKind() == train.SpeedServersAsync {
		saved /= float64(max(workers, 1))
	}
	return saved > Price(s, g, left)
}

// Price is what a restart must save, in seconds: what it costs, and a share of the time left, since predictions are not
// exact.
func Price(s *cluster.Snapshot, g *cluster.Gang, left float64) float64 {
	return s.Tuning.Hysteresis*left + s.RestartSeconds(g)
}

// Extend returns a gang's part of a node with vacant devices added, or false if there are too few.
func Extend(s *cluster.Snapshot, g *cluster.Gang, count int) (cluster.Placement, bool) {
	if len(g.Got.Parts) != 1 {
		return cluster.Placement{}, false
	}
	p := g.Got.Copy()
	part := &p.Parts[0]
	part.Count = count
	complete(s, part, given(s, part.Node))
	return p, len(part.Devices) == count
}
