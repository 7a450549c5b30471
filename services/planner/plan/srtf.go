package plan

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// SRTF serves jobs by priority and then by the shortest predicted remaining time. A job may take the devices of a running one of the same priority, if that one
// would run longer even after the price of its restart and a tenth of its time are taken off. Where nothing is known of a job, the user's estimate
// counts, and without it the median of the others. A job that does not fit lets later ones pass.
type SRTF struct{}

// Name is srtf.
func (SRTF) Name() string { return "srtf" }

func (p SRTF) decide(s State) train.Plan { return settle(s, p) }

func (SRTF) share(b *board) {
	turn := 0
	for _, tier := range b.tiers() {
		// Who must not be stopped now comes first; one that lost its place to a higher priority lines up with the others.
		line := make([]*candidate, 0, len(tier))
		for _, c := range tier {
			if c.rescalable || !b.keep(c, c.base.size) {
				line = append(line, c)
			}
		}
		slices.SortStableFunc(line, func(x, y *candidate) int { return cmp.Compare(b.shortness(x), b.shortness(y)) })
		for _, c := range line {
			c.turn, turn = turn, turn+1
			if !c.rescalable || !b.keep(c, c.base.size) {
				b.serve(c)
			}
		}
	}
}

// shortness is the remaining time by which a job is ordered. One that holds devices is favoured by what stopping it would cost.
func (b *board) shortness(c *candidate) float64 {
	if !c.rescalable {
		return c.remaining(c.min)
	}
	return c.remaining(c.base.size)*(1-b.tuning.Hysteresis) - b.tuning.RestartSeconds
}
