package diagnose

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/fabric"
)

// Lag is how slow one row of the matrix was in one window. A row that was not timed has no slots.
type Lag struct {
	// Slots is the number of timed slots, Slow the number of those in which packets took much longer than usual.
	Slots, Slow int
	// Excess is how much longer, in seconds.
	Excess float64
}

// slowByChance is the largest probability that a slot of a healthy row counts as slow.
const slowByChance = 0.01

// A row has few slots in a window, and one of them is slow by chance too often to count.
const slowRowDoubt = 1e-3

// LocaliseSlow names the links that explain why rows are slow, as Localise does for losses: a slow slot counts as
// lost.
func LocaliseSlow(m *fabric.Matrix, lags []Lag, o Options) []Suspect {
	if o.Background == 0 {
		o.Background = slowByChance
	}
	o.RowDoubt = cmp.Or(o.RowDoubt, slowRowDoubt)
	counts := make([]Count, len(lags))
	for r, l := range lags {
		counts[r] = Count{Sent: l.Slots, Lost: l.Slow}
	}
	c := &localiser{matrix: m, counts: counts, options: o.withDefaults(), explained: map[int32]int{}}
	blamed := c.run()
	for i, s := range blamed {
		blamed[i].Loss, blamed[i].DelaySeconds = 0, c.delay(s.Link, lags)
	}
	return blamed
}

// delay returns the median excess of the slow rows on which the link alone is blamed, or the least excess if there
// are none.
func (c *localiser) delay(link int32, lags []Lag) float64 {
	var alone, all []float64
	for _, r := range c.matrix.Over(link) {
		if !c.lossy[r] {
			continue
		}
		all = append(all, lags[r].Excess)
		if c.explained[r] == 1 {
			alone = append(alone, lags[r].Excess)
		}
	}
	if len(alone) == 0 {
		return slices.Min(all)
	}
	slices.Sort(alone)
	return alone[len(alone)/2]
}
