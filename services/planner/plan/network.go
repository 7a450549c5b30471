package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Link is one direction of a link of the network that loses or delays packets.
type Link struct {
	ID   string  `json:"id"`
	Loss float64 `json:"loss_ratio"`
	// DelaySeconds is how much longer than usual packets take.
	DelaySeconds float64 `json:"delay_seconds,omitempty"`
	// Packets from any node of From to any of To may cross it.
	From []train.NodeID `json:"from"`
	To   []train.NodeID `json:"to"`
}

// lossyLink is a link with its nodes by number.
type lossyLink struct {
	Link
	from, to []bool
}

// crossed says whether a gang on some nodes sends packets over the link.
func (l *lossyLink) crossed(p *place) bool {
	for i := range p.spread() {
		for k := range i {
			if l.between(p.part(i).node, p.part(k).node) {
				return true
			}
		}
	}
	return false
}

// between says whether what two nodes send each other crosses the link.
func (l *lossyLink) between(x, y int) bool { return l.from[x] && l.to[y] || l.from[y] && l.to[x] }

// readLinks settles which nodes a gang may have together. Nodes between which a link loses more than the bound are put on different islands, as few as a greedy
// search finds, and each island is to policies a kind of node of its own. Jobs on one node send nothing over the network and may have any of them.
func (b *board) readLinks(links []Link) {
	for _, l := range links {
		b.links = append(b.links, lossyLink{l, b.marked(l.From), b.marked(l.To)})
	}
	bad := b.above()
	if len(bad) == 0 || !b.spans {
		return
	}
	apart := func(x, y int) bool {
		return slices.ContainsFunc(bad, func(l *lossyLink) bool { return l.between(x, y) })
	}
	// Whoever is apart from few comes first, so that the first island is large.
	foes, order := make([]int, len(b.nodes)), make([]int, len(b.nodes))
	for i := range b.nodes {
		order[i] = i
		for k := range b.nodes {
			if apart(i, k) {
				foes[i]++
			}
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(foes[x], foes[y]) })
	var islands [][]int
	for _, i := range order {
		at := slices.IndexFunc(islands, func(members []int) bool {
			return !slices.ContainsFunc(members, func(k int) bool { return apart(i, k) })
		})
		if at < 0 {
			at, islands = len(islands), append(islands, nil)
		}
		islands[at] = append(islands[at], i)
		if at > 0 {
			b.nodes[i].island = "/" + strconv.Itoa(at)
			b.nodes[i].traits += traits(b.nodes[i].island)
		}
	}
}

// marked has a mark for each of some nodes.
func (b *board) marked(ids []train.NodeID) []bool {
	marks := make([]bool, len(b.nodes))
	for _, id := range ids {
		if at, known := b.findNode(id); known {
			marks[at] = true
		}
	}
	return marks
}

// bad are the links above the bound that a place crosses.
func (b *board) bad(p *place) []*lossyLink {
	return slices.DeleteFunc(b.above(), func(l *lossyLink) bool { return !l.crossed(p) })
}

// felt are the links that a place crosses and that lose more than the bound or delay packets.
func (b *board) felt(p *place) []*lossyLink {
	var felt []*lossyLink
	for i := range b.links {
		if l := &b.links[i]; (l.Loss >= b.tuning.LinkLossBound || l.DelaySeconds > 0) && l.crossed(p) {
			felt = append(felt, l)
		}
	}
	return felt
}

// through is the part of a gang's packets that arrive.
func (b *board) through(p *place) float64 {
	arrive := 1.0
	for i := range b.links {
		if b.links[i].crossed(p) {
			arrive *= 1 - b.links[i].Loss
		}
	}
	return arrive
}

// waits is how long a gang waits at a place, to its end, for what slow links delay. In each step pieces go around the ring of its nodes, 2 (n-1) of them one after the other over
// each link (Patarasuk and Yuan, 2009).
func (b *board) waits(c *candidate, p *place) float64 {
	delay := 0.0
	for i := range b.links {
		if b.links[i].crossed(p) {
			delay = max(delay, b.links[i].DelaySeconds)
		}
	}
	nodes := p.spread()
	steps := float64(max(c.Spec.MaxEpochs-c.EpochsDone, 1)) * c.Spec.StepsIn(c.configOn(p.total(), nodes))
	return bounded(steps * 2 * float64(nodes-1) * delay)
}

// leastThrough bounds how slow a gang is taken to be on links that let nothing through.
const leastThrough = 0.01

// slowdown is how many times as long a step is taken to last over lossy links. What TCP sends goes down with the root of the loss (Mathis et al., 1997), and the
// bound is where that begins to be felt.
func (b *board) slowdown(bad []*lossyLink) float64 {
	slow := 1.0
	for _, l := range bad {
		slow = max(slow, math.Sqrt(l.Loss/b.tuning.LinkLossBound))
	}
	return slow
}

// cutOff is the reason of a job that would have room if no link lost packets; false where that is not why it waits.
func (a *account) cutOff(c *candidate) (train.Reason, bool) {
	bad := a.above()
	if len(bad) == 0 || !a.spans {
		return train.Reason{}, false
	}
	all, together := map[string]int{}, map[string]int{}
	whole, widest := 0, 0
	for i := range a.nodes {
		if n := &a.nodes[i]; c.suits(n.memory, n.traits) {
			all[n.model] += len(n.devices)
			together[n.model+n.island] += len(n.devices)
			whole, widest = max(whole, all[n.model]), max(widest, together[n.model+n.island])
		}
	}
	if whole < c.min || widest >= c.min {
		return train.Reason{}, false
	}
	return train.Reason{
		Code:    ReasonLinkDegraded,
		Message: fmt.Sprintf("needs %s on nodes between which packets arrive, and there are %d: %s", devices(c.min), widest, lossWords(bad)),
		Hint:    "`switchyard net status` shows the links",
	}, true
}

// above are all links above the bound.
func (b *board) above() []*lossyLink {
	var bad []*lossyLink
	for i := range b.links {
		if b.links[i].Loss >= b.tuning.LinkLossBound {
			bad = append(bad, &b.links[i])
		}
	}
	return bad
}

// lossWords says what links lose, or how much later packets come.
func lossWords(bad []*lossyLink) string {
	words := fmt.Sprintf("the link %s loses %.3g %% of the packets", bad[0].ID, 100*bad[0].Loss)
	if bad[0].DelaySeconds > 0 {
		words = fmt.Sprintf("the link %s takes %.3g ms longer than usual", bad[0].ID, 1e3*bad[0].DelaySeconds)
	}
	if more := len(bad) - 1; more > 0 {
		words += fmt.Sprintf(", and %d more are degraded", more)
	}
	return words
}
