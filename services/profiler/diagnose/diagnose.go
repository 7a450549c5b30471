// Package diagnose names the links that lose or delay packets, from what probes over known paths met: deTector's loss localisation (ATC'17). It sends no probe, reads no
// clock, and decides nothing about jobs.
package diagnose

import (
	"cmp"
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
	// HitRatio is the part of the rows over a link that must have lost, for it to be blamed: more than 0.6. Healthy rows do not acquit it altogether, because a
	// switch may lose some flows and not others.
	HitRatio float64
}

func (o Options) withDefaults() Options {
	o.Background = cmp.Or(o.Background, 1e-4)
	o.Doubt = cmp.Or(o.Doubt, 0.01)
	o.HitRatio = cmp.Or(o.HitRatio, 0.6)
	return o
}

// A single row is taken for lossy when a healthy one would lose as much this rarely. It may be often, because no link is blamed for one row of several.
const rowDoubt = 1e-3

// Suspect is a link that is blamed.
type Suspect struct {
	Link int32
	// Loss is the part of the packets that the link loses; DelaySeconds is how much longer than usual they take over one that is slow.
	Loss, DelaySeconds float64
	// Confidence is the part of the rows over it that lost, less the probability that a healthy link loses as much.
	Confidence float64
	// Rows that lost, and the probes sent and lost over all its rows.
	Rows, Sent, Lost int
}

// Localise names the links that explain the lost probes of a window, the most losses first. The counts are by row.
//
// It is greedy: of the links most of whose rows lost, it blames the one whose rows lost most packets that nothing blamed explains yet, and goes on with the others.
// Those packets count in part where rows over the link are healthy, since that speaks against it.
// A link that turns out to be explained by those blamed after it is let off.
func Localise(m *fabric.Matrix, counts []Count, o Options) []Suspect {
	c := &court{matrix: m, counts: counts, options: o.withDefaults(), explained: map[int32]bool{}}
	guilty := c.judge()
	c.rate(guilty)
	return guilty
}

// court is one window.
type court struct {
	matrix    *fabric.Matrix
	counts    []Count
	options   Options
	lossy     []bool // by row
	explained map[int32]bool
	suspects  []Suspect // by link
}

// judge names the guilty.
func (c *court) judge() []Suspect {
	c.indict()
	var guilty []Suspect
	for len(c.suspects) > 0 {
		at, most := -1, 0.0
		for i, s := range c.suspects {
			if lost := float64(c.unexplained(s.Link)) * s.Confidence; lost > most {
				at, most = i, lost
			}
		}
		if at < 0 {
			break
		}
		for _, r := range c.matrix.Over(c.suspects[at].Link) {
			c.explained[r] = true
		}
		guilty = append(guilty, c.suspects[at])
		c.suspects = slices.Delete(c.suspects, at, at+1)
	}
	return c.acquit(guilty)
}

// indict lists the links most of whose rows lost, and together too much for chance.
func (c *court) indict() {
	c.lossy = make([]bool, len(c.matrix.Rows))
	var links []int32
	for r, n := range c.counts {
		if n.Lost > 0 && tail(n.Sent, n.Lost, c.options.Background) < rowDoubt {
			c.lossy[r] = true
			links = append(links, c.matrix.Rows[r]...)
		}
	}
	slices.Sort(links)
	for _, l := range slices.Compact(links) {
		s, probed := Suspect{Link: l}, 0
		for _, r := range c.matrix.Over(l) {
			if n := c.counts[r]; n.Sent > 0 {
				probed++
				s.Sent, s.Lost = s.Sent+n.Sent, s.Lost+n.Lost
			}
			if c.lossy[r] {
				s.Rows++
			}
		}
		ratio, chance := float64(s.Rows)/float64(probed), tail(s.Sent, s.Lost, c.options.Background)
		if ratio > c.options.HitRatio && chance < c.options.Doubt/float64(c.matrix.Links()) {
			s.Confidence = max(0, ratio-chance*float64(c.matrix.Links()))
			c.suspects = append(c.suspects, s)
		}
	}
}

// unexplained counts the losses on the rows over a link that nothing explains yet.
func (c *court) unexplained(link int32) int {
	lost := 0
	for _, r := range c.matrix.Over(link) {
		if c.lossy[r] && !c.explained[r] {
			lost += c.counts[r].Lost
		}
	}
	return lost
}

// acquit lets off, the least losses first, whom the others explain.
func (c *court) acquit(guilty []Suspect) []Suspect {
	slices.SortStableFunc(guilty, func(a, b Suspect) int { return cmp.Or(cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.Link, b.Link)) })
	blamed := c.blamed(guilty)
	for i, s := range slices.Backward(guilty) {
		rows := c.matrix.Over(s.Link)
		if slices.ContainsFunc(rows, func(r int32) bool { return c.lossy[r] && blamed[r] == 1 }) {
			continue
		}
		for _, r := range rows {
			blamed[r]--
		}
		guilty = slices.Delete(guilty, i, i+1)
	}
	return guilty
}

// blamed counts the suspects on each row.
func (c *court) blamed(guilty []Suspect) map[int32]int {
	n := map[int32]int{}
	for _, s := range guilty {
		for _, r := range c.matrix.Over(s.Link) {
			n[r]++
		}
	}
	return n
}

// rate estimates what each link loses from the rows on which it alone is blamed, and where there is none from the row that lost least.
func (c *court) rate(guilty []Suspect) {
	blamed := c.blamed(guilty)
	for i, s := range guilty {
		var alone Count
		least := 1.0
		for _, r := range c.matrix.Over(s.Link) {
			n := c.counts[r]
			if n.Sent == 0 {
				continue
			}
			least = min(least, float64(n.Lost)/float64(n.Sent))
			if blamed[r] == 1 {
				alone.Sent, alone.Lost = alone.Sent+n.Sent, alone.Lost+n.Lost
			}
		}
		guilty[i].Loss = least
		if alone.Sent > 0 {
			guilty[i].Loss = float64(alone.Lost) / float64(alone.Sent)
		}
	}
}
