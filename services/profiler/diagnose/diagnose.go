// Package diagnose names the links that lose or delay packets, from the results of probes over known paths, by
// deTector's loss localisation (ATC'17). It sends no probes, reads no clock, and decides nothing about jobs.
package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/fabric"
)

// Count is the result of the probes over one row of the matrix in one window. A row that was not probed has sent
// none.
type Count struct {
	Sent, Lost int
}

// Add adds another result.
func (n *Count) Add(other Count) {
	n.Sent += other.Sent
	n.Lost += other.Lost
}

// Options are the parameters of the judgement. The zero value means the defaults.
type Options struct {
	// Background is the largest share of packets that a healthy path loses: 1e-4.
	Background float64
	// Doubt is how often a window of a healthy network may name a link: 0.01.
	Doubt float64
	// RowDoubt is how often a healthy row is taken for lossy: 0.05. It may be often, because no link is blamed for
	// one of several rows.
	RowDoubt float64
	// Known are links that were blamed before: no other link is blamed for what they still explain.
	Known map[int32]bool
}

func (o Options) withDefaults() Options {
	o.Background = cmp.Or(o.Background, 1e-4)
	o.Doubt = cmp.Or(o.Doubt, 0.01)
	o.RowDoubt = cmp.Or(o.RowDoubt, 0.05)
	return o
}

// hitRatio is the share of the rows over a link that must have lost packets for the link to be blamed. Healthy rows do
// not clear it completely, because a switch may lose some flows and not others.
const hitRatio = 0.6

// clearly is by how much better, as a log-likelihood, a link has to explain the losses than any other link, to be
// named: 20 to 1.
const clearly = 3

// Suspect is a link that is blamed.
type Suspect struct {
	Link int32
	// Loss is the share of packets that the link loses. DelaySeconds is how much longer than usual they take if it is
	// slow.
	Loss, DelaySeconds float64
	// Confidence is the share of the expected rows that lost packets, less the probability that a healthy link loses
	// as much.
	Confidence float64
	// Rows is the number of lossy rows over the link; Sent and Lost are the probes over all its rows.
	Rows, Sent, Lost int
}

// Localise names the links that explain the lost probes of a window, the most losses first. The counts are by row.
//
// It is greedy. Among the links whose rows mostly lost packets, it blames the link that makes the results, on rows
// that no blamed link explains yet, the most likely, and continues with the others. A link is dropped again if the
// links blamed after it explain its losses, or if another link would explain them nearly as well: the next windows
// will tell. No window can distinguish links on exactly the same rows; the one with the lowest number is named for
// all of them.
func Localise(m *fabric.Matrix, counts []Count, o Options) []Suspect {
	c := &localiser{matrix: m, counts: counts, options: o.withDefaults(), explained: map[int32]int{}}
	blamed := c.run()
	c.rate(blamed)
	return blamed
}

// localiser judges one window.
type localiser struct {
	matrix    *fabric.Matrix
	counts    []Count
	options   Options
	lossy     []bool        // by row
	explained map[int32]int // by row: how many blamed links are on it
	suspects  []Suspect     // by link
}

// run names the links to blame.
func (c *localiser) run() []Suspect {
	c.findSuspects()
	var blamed []Suspect
	for len(c.suspects) > 0 {
		at, most, known := -1, 0.0, false
		for i, s := range c.suspects {
			gain, before := c.gain(s.Link), c.options.Known[s.Link]
			if gain > 0 && (gain > most && before == known || before && !known) {
				at, most, known = i, gain, before
			}
		}
		if at < 0 {
			break
		}
		c.blame(c.suspects[at].Link, 1)
		blamed = append(blamed, c.suspects[at])
		c.suspects = slices.Delete(c.suspects, at, at+1)
	}
	return slices.DeleteFunc(c.dropExplained(blamed), func(s Suspect) bool { return !c.needed(s.Link) })
}

// findSuspects lists the links most of whose rows lost packets, and together more than chance explains.
func (c *localiser) findSuspects() {
	c.lossy = make([]bool, len(c.matrix.Rows))
	var links []int32
	for r, n := range c.counts {
		if n.Lost > 0 && tail(n.Sent, n.Lost, c.options.Background) < c.options.RowDoubt {
			c.lossy[r] = true
			links = append(links, c.matrix.Rows[r]...)
		}
	}
	slices.Sort(links)
	for _, l := range slices.Compact(links) {
		s := Suspect{Link: l}
		for _, r := range c.matrix.Over(l) {
			s.Sent, s.Lost = s.Sent+c.counts[r].Sent, s.Lost+c.counts[r].Lost
			if c.lossy[r] {
				s.Rows++
			}
		}
		ratio, chance := c.hitRatio(s), c.chance(Count{s.Sent, s.Lost})
		if ratio > hitRatio && chance < c.options.Doubt {
			s.Confidence = max(0, ratio-chance)
			c.suspects = append(c.suspects, s)
		}
	}
}

// hitRatio returns the share of the rows over a link that lost packets. A row without losses counts by the
// probability that it would have lost some at the link's mean loss: a row with few probes is no evidence.
func (c *localiser) hitRatio(s Suspect) float64 {
	pass := math.Log1p(-float64(s.Lost) / float64(s.Sent))
	spared := 0.0
	for _, r := range c.matrix.Over(s.Link) {
		if n := c.counts[r]; !c.lossy[r] && n.Sent > 0 {
			spared -= math.Expm1(float64(n.Sent) * pass)
		}
	}
	return float64(s.Rows) / (float64(s.Rows) + spared)
}

// gain returns by how much, as a log-likelihood, the results over a link are more likely if it loses packets than if
// it is healthy. Rows that are explained already do not count.
func (c *localiser) gain(link int32) float64 { return c.unexplained(link).gain(c.options.Background) }

// unexplained adds up the rows over a link that no blamed link explains.
func (c *localiser) unexplained(link int32) (sum Count) {
	for _, r := range c.matrix.Over(link) {
		if c.explained[r] == 0 {
			sum.Add(c.counts[r])
		}
	}
	return sum
}

// chance returns about how often any link of a healthy network loses as much.
func (c *localiser) chance(n Count) float64 {
	return tail(n.Sent, n.Lost, c.options.Background) * float64(c.matrix.Links())
}

func (n Count) gain(background float64) float64 {
	loss := float64(n.Lost) / float64(max(n.Sent, 1))
	if loss <= background {
		return 0
	}
	gain := float64(n.Lost) * math.Log(loss/background)
	if n.Lost < n.Sent {
		gain += float64(n.Sent-n.Lost) * (math.Log1p(-loss) - math.Log1p(-background))
	}
	return gain
}

// needed reports whether the other blamed links leave losses that only this link explains well.
func (c *localiser) needed(link int32) bool {
	c.blame(link, -1)
	defer c.blame(link, 1)
	gain := c.gain(link)
	if c.chance(c.unexplained(link)) >= c.options.Doubt {
		return false
	}
	for _, r := range c.matrix.Over(link) {
		if c.explained[r] > 0 || c.counts[r].Lost == 0 {
			continue
		}
		for _, other := range c.matrix.Rows[r] {
			if gain-c.gain(other) < clearly && !slices.Equal(c.matrix.Over(other), c.matrix.Over(link)) {
				return false
			}
		}
	}
	return true
}

// blame adds a link to its rows, or removes it.
func (c *localiser) blame(link int32, by int) {
	for _, r := range c.matrix.Over(link) {
		c.explained[r] += by
	}
}

// dropExplained drops the links that the others explain, fewest losses first.
func (c *localiser) dropExplained(blamed []Suspect) []Suspect {
	slices.SortStableFunc(blamed, func(a, b Suspect) int { return cmp.Or(cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.Link, b.Link)) })
	for i, s := range slices.Backward(blamed) {
		only := func(r int32) bool { return c.lossy[r] && c.explained[r] == 1 }
		if !c.options.Known[s.Link] && !slices.ContainsFunc(c.matrix.Over(s.Link), only) {
			c.blame(s.Link, -1)
			blamed = slices.Delete(blamed, i, i+1)
		}
	}
	return blamed
}

// rate estimates the loss of each link from the rows on which it alone is blamed, or from its row with the least loss
// if there are none.
func (c *localiser) rate(blamed []Suspect) {
	for i, s := range blamed {
		var alone Count
		least := 1.0
		for _, r := range c.matrix.Over(s.Link) {
			n := c.counts[r]
			if n.Sent == 0 {
				continue
			}
			least = min(least, float64(n.Lost)/float64(n.Sent))
			if c.explained[r] == 1 {
				alone.Add(n)
			}
		}
		blamed[i].Loss = least
		if alone.Sent > 0 {
			blamed[i].Loss = float64(alone.Lost) / float64(alone.Sent)
		}
	}
}
