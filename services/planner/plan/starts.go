package plan

import (
	"math"
	"slices"
)

// predictedStarts is for how many waiting jobs a start is predicted: further down the line a number would only pretend.
const predictedStarts = 200

// predictStarts plays the line forward: each waiting job in turn starts with min devices on the node where enough of them are released first, by the
// predicted ends of those that hold them. A wait of 0 means that it is unknown.
func (b *board) predictStarts() []float64 {
	starts := make([]float64, len(b.jobs))
	releases := make([][]float64, len(b.nodes))
	var line []*candidate
	for i := range b.nodes {
		releases[i] = make([]float64, b.nodes[i].free(), len(b.nodes[i].devices))
	}
	for _, c := range b.jobs {
		if !c.got.held() {
			line = append(line, c)
			continue
		}
		releases[c.got.node] = append(releases[c.got.node], slices.Repeat([]float64{c.end(c.got.size)}, c.got.size)...)
	}
	for i := range releases {
		slices.Sort(releases[i])
	}
	slices.SortFunc(line, func(x, y *candidate) int { return x.turn - y.turn })
	for _, c := range line[:min(len(line), predictedStarts)] {
		at, start := nowhere, math.Inf(1)
		for i := range b.nodes {
			if b.fits(c, &b.nodes[i]) && releases[i][c.min-1] < start {
				at, start = i, releases[i][c.min-1]
			}
		}
		if at == nowhere {
			continue
		}
		starts[c.rank] = start
		for d := range c.min {
			releases[at][d] = start + c.end(c.min)
		}
		slices.Sort(releases[at])
	}
	return starts
}

// end is the predicted time until a job ends; infinite where nothing is known of it.
func (c *candidate) end(size int) float64 {
	if c.predicted.source == fromNothing {
		return math.Inf(1)
	}
	return c.remaining(size)
}
