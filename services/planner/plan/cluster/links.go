package cluster

import (
	"fmt"
	"math"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// Link is a link of the network with its nodes by place.
type Link struct {
	state.Link
	from, to []bool
}

// Crossed says whether a gang with such a placement sends packets over the link.
func (l *Link) Crossed(p Placement) bool {
	for i := range p.Parts {
		for k := range i {
			if l.Between(p.Parts[i].Node, p.Parts[k].Node) {
				return true
			}
		}
	}
	return false
}

// Between says whether what two nodes send each other crosses the link.
func (l *Link) Between(x, y int) bool { return l.from[x] && l.to[y] || l.from[y] && l.to[x] }

// marked has a mark for each of some nodes.
func (s *Snapshot) marked(ids []train.NodeID) []bool {
	marks := make([]bool, len(s.Nodes))
	for _, id := range ids {
		for at := range s.FindNodes(id) {
			marks[at] = true
		}
	}
	return marks
}

// BadLinks are the links that lose more than the bound.
func (s *Snapshot) BadLinks() []*Link {
	var bad []*Link
	for i := range s.Links {
		if s.Links[i].Loss >= s.Tuning.LinkLossBound {
			bad = append(bad, &s.Links[i])
		}
	}
	return bad
}

// Felt are the links that a placement crosses and that lose more than the bound or delay packets.
func (s *Snapshot) Felt(p Placement) []*Link {
	var felt []*Link
	for i := range s.Links {
		if l := &s.Links[i]; (l.Loss >= s.Tuning.LinkLossBound || l.DelaySeconds > 0) && l.Crossed(p) {
			felt = append(felt, l)
		}
	}
	return felt
}

// CutOff says whether one of some links is between a node and a part of a placement.
func CutOff(p Placement, node int, links []*Link) bool {
	for _, l := range links {
		for i := range p.Parts {
			if l.Between(p.Parts[i].Node, node) {
				return true
			}
		}
	}
	return false
}

// through is the part of a gang's packets that arrive.
func (s *Snapshot) through(p Placement) float64 {
	arrive := 1.0
	for i := range s.Links {
		if s.Links[i].Crossed(p) {
			arrive *= 1 - s.Links[i].Loss
		}
	}
	return arrive
}

// leastThrough is the least share of its speed that a gang is assumed to keep on links that let nothing through.
const leastThrough = 0.01

// LinkWait is how long a gang waits to its end for what slow links delay, in seconds. In each step pieces go around the
// ring of its nodes, 2 (n-1) of them one after the other over each link (Patarasuk and Yuan, 2009).
func (s *Snapshot) LinkWait(g *Gang, p Placement) float64 {
	delay := 0.0
	for i := range s.Links {
		if s.Links[i].Crossed(p) {
			delay = max(delay, s.Links[i].DelaySeconds)
		}
	}
	if delay == 0 {
		return 0
	}
	nodes, trips := len(p.Parts), 2*(len(p.Parts)-1) // around a ring and back
	if p.Servers() > 0 {
		trips = 2 // gradients to a server, parameters from it
	}
	steps := math.Max(g.Spec.Epochs()-g.Done(), 1) * g.Spec.StepsIn(g.config(p.Size(), nodes))
	return bounded(steps * float64(trips) * delay)
}

// LinkHarm is how much longer a gang takes for what its links lose and delay, in seconds.
func (s *Snapshot) LinkHarm(g *Gang, p Placement) float64 {
	return g.Remaining(p.Size())*(1/max(s.through(p), leastThrough)-1) + s.LinkWait(g, p)
}

// Expected is the predicted time to the end of a gang with a placement, its links included, in seconds.
func (s *Snapshot) Expected(g *Gang, p Placement) float64 {
	nodes := 1
	if p.Servers() > 0 {
		nodes = s.NodesFor(p.Size())
	}
	return g.RemainingWith(p.Size(), p.Servers(), nodes)/max(s.through(p), leastThrough) + s.LinkWait(g, p)
}

// NodesFor is the least number of nodes on which a gang with this number of devices finds room.
func (s *Snapshot) NodesFor(devices int) int {
	return max((devices+s.Largest-1)/max(s.Largest, 1), 1)
}

// Slowdown is how many times as long a step lasts over lossy links. What TCP sends goes down with the root of the loss
// (Mathis et al., 1997), and the bound is where that begins to be felt.
func (s *Snapshot) Slowdown(bad []*Link) float64 {
	slow := 1.0
	for _, l := range bad {
		slow = max(slow, math.Sqrt(l.Loss/s.Tuning.LinkLossBound))
	}
	return slow
}

// LossWords says what links lose, or how much later packets come.
func LossWords(bad []*Link) string {
	words := fmt.Sprintf("the link %s loses %.3g %% of the packets", bad[0].ID, 100*bad[0].Loss)
	if bad[0].DelaySeconds > 0 {
		words = fmt.Sprintf("the link %s takes %.3g ms longer than usual", bad[0].ID, 1e3*bad[0].DelaySeconds)
	}
	if more := len(bad) - 1; more > 0 {
		words += fmt.Sprintf(", and %d more are degraded", more)
	}
	return words
}
