// Package diagnose names the links that lose or delay packets, from what probes over known paths met: deTector's loss localisation (ATC'17). It sends no probe, reads no
// clock, and decides nothing about jobs.
package diagnose

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/fabric"
)

// Count is what became of the probes over one row of the matrix in one window. A row that was not probed has sent none.
type Count struct {
	Sent, Lost int
}

// Options are what a window is judged by. The zero value means the defaults.
type Options struct {
	// Background is the part of the packets that a healthy path loses at most: 1e-4.
	Background float64
	// Doubt is how often a window of a healthy network may name a link: 0.01.
	Doubt float64
	// RowDoubt is how often a healthy row is taken for lossy: 0.05. It may be often, because no link is blamed for one row of several.
	RowDoubt float64
	// HitRatio is the part of the rows over a link that must have lost, for it to be blamed: more than 0.6. Healthy rows do not acquit it altogether, because a
	// switch may lose some flows and not others.
	HitRatio float64
	// Known are links that were blamed before: what they still explain, no other is blamed for.
	Known map[int32]bool
}

func (o Options) withDefaults() Options {
	o.Background = cmp.Or(o.Background, 1e-4)
	o.Doubt = cmp.Or(o.Doubt, 0.01)
	o.RowDoubt = cmp.Or(o.RowDoubt, 0.05)
	o.HitRatio = cmp.Or(o.HitRatio, 0.6)
	return o
}

// clearly is by how much better, as the logarithm of a likelihood, a link has to explain what was lost than any other one, to be named: 20 to 1.
const clearly = 3

// Suspect is a link that is blamed.
type Suspect struct {
	Link int32
	// Loss is the part of the packets that the link loses; DelaySeconds is how much longer than usual they take over one that is slow.
	Loss, DelaySeconds float64
	// Confidence is the part of the rows over it that lost, of those that should have, less the probability that a healthy link loses as much.
	Confidence float64
	// Rows that lost, and the probes sent and lost over all its rows.
	Rows, Sent, Lost int
}

// Localise names the links that explain the lost probes of a window, the most losses first. The counts are by row.
//
// It is greedy: of the links most of whose rows lost, it blames the one that makes what was lost and what was not, on rows that nothing blamed explains yet, the most
// likely, and goes on with the others. A link that turns out to be explained by those blamed after it is let off. So is one in whose place another would explain
// nearly as much: the next windows will tell. Links on exactly the same rows no window ever tells apart: the one with the lowest number is named for all of them.
func Localise(m *fabric.Matrix, counts []Count, o Options) []Suspect {
	c := &court{matrix: m, counts: counts, options: o.withDefaults(), explained: map[int32]int{}}
	guilty := c.judge()
	c.rate(guilty)
	return guilty
}

// court is one window.
type court struct {
	matrix    *fabric.Matrix
	counts    []Count
	options   Options
	lossy     []bool        // by row
	explained map[int32]int // by row: how many of those that are blamed are on it
	suspects  []Suspect     // by link
}

// judge names the guilty.
func (c *court) judge() []Suspect {
	c.indict()
	var guilty []Suspect
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
		guilty = append(guilty, c.suspects[at])
		c.suspects = slices.Delete(c.suspects, at, at+1)
	}
	return slices.DeleteFunc(c.acquit(guilty), func(s Suspect) bool { return !c.stands(s.Link) })
}

// indict lists the links most of whose rows lost, and together too much for chance.
func (c *court) indict() {
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
		if ratio > c.options.HitRatio && chance < c.options.Doubt {
			s.Confidence = max(0, ratio-chance)
			c.suspects = append(c.suspects, s)
		}
	}
}

// hitRatio is the part of the rows over a link that lost. One that did not counts in so far as it would have, had it lost as much as all of them together: of a
// row with few probes nothing is to be expected.
func (c *court) hitRatio(s Suspect) float64 {
	pass := math.Log1p(-float64(s.Lost) / float64(s.Sent))
	spared := 0.0
	for _, r := range c.matrix.Over(s.Link) {
		if n := c.counts[r]; !c.lossy[r] && n.Sent > 0 {
			spared -= math.Expm1(float64(n.Sent) * pass)
		}
	}
	return float64(s.Rows) / (float64(s.Rows) + spared)
}

// gain is how much more likely, as a logarithm, what became of the probes over a link is if it loses packets than if it is healthy. Rows that are explained already
// say nothing.
func (c *court) gain(link int32) float64 { return c.unexplained(link).gain(c.options.Background) }

// unexplained adds up the rows over a link that nothing explains.
func (c *court) unexplained(link int32) (sum Count) {
	for _, r := range c.matrix.Over(link) {
		if c.explained[r] == 0 {
			sum.Sent, sum.Lost = sum.Sent+c.counts[r].Sent, sum.Lost+c.counts[r].Lost
		}
	}
	return sum
}

// chance is about how often any link of a healthy network loses as much.
func (c *court) chance(n Count) float64 {
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

// stands says whether, beside the others that are blamed, a link is needed for what was lost, and no other explains nearly as much.
func (c *court) stands(link int32) bool {
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

// blame counts a link in or out on its rows.
func (c *court) blame(link int32, by int) {
	for _, r := range c.matrix.Over(link) {
		c.explained[r] += by
	}
}

// acquit lets off, the least losses first, whom the others explain.
func (c *court) acquit(guilty []Suspect) []Suspect {
	slices.SortStableFunc(guilty, func(a, b Suspect) int { return cmp.Or(cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.Link, b.Link)) })
	for i, s := range slices.Backward(guilty) {
		needed := func(r int32) bool { return c.lossy[r] && c.explained[r] == 1 }
		if !c.options.Known[s.Link] && !slices.ContainsFunc(c.matrix.Over(s.Link), needed) {
			c.blame(s.Link, -1)
			guilty = slices.Delete(guilty, i, i+1)
		}
	}
	return guilty
}

// rate estimates what each link loses from the rows on which it alone is blamed, and where there is none from the row that lost least.
func (c *court) rate(guilty []Suspect) {
	for i, s := range guilty {
		var alone Count
		least := 1.0
		for _, r := range c.matrix.Over(s.Link) {
			n := c.counts[r]
			if n.Sent == 0 {
				continue
			}
			least = min(least, float64(n.Lost)/float64(n.Sent))
			if c.explained[r] == 1 {
				alone.Sent, alone.Lost = alone.Sent+n.Sent, alone.Lost+n.Lost
			}
		}
		guilty[i].Loss = least
		if alone.Sent > 0 {
			guilty[i].Loss = float64(alone.Lost) / float64(alone.Sent)
		}
	}
}
