package diagnose

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/fabric"
)

// Lag is how slow one row of the matrix was in one window. A row that was not timed has no slots.
type Lag struct {
	// Slots are those in which it was timed, Slow those of them in which its packets took much longer than usual.
	Slots, Slow int
	// Excess is how much longer, in seconds.
	Excess float64
}

// slowByChance is how often a slot of a healthy row is taken for slow, at most.
const slowByChance = 0.01

// A row has few slots in a window, of which one is slow by chance too often to count.
const slowRowDoubt = 1e-3

// LocaliseSlow names the links that explain why rows are slow, as Localise does for losses: a slow slot counts as lost.
func LocaliseSlow(m *fabric.Matrix, lags []Lag, o Options) []Suspect {
	if o.Background == 0 {
		o.Background = slowByChance
	}
	o.RowDoubt = cmp.Or(o.RowDoubt, slowRowDoubt)
	counts := make([]Count, len(lags))
	for r, l := range lags {
		counts[r] = Count{Sent: l.Slots, Lost: l.Slow}
	}
	c := &court{matrix: m, counts: counts, options: o.withDefaults(), explained: map[int32]int{}}
	guilty := c.judge()
	for i, s := range guilty {
		guilty[i].Loss, guilty[i].DelaySeconds = 0, c.delay(s.Link, lags)
	}
	return guilty
}

// delay is the median of what the slow rows show on which the link alone is blamed, and where there is none what the least slow row shows.
func (c *court) delay(link int32, lags []Lag) float64 {
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
