package plan

import "github.com/switchyard-dl/switchyard/libs/train"

// SwitchyardOracle is Switchyard with the true step times and gains of a trace's present instead of what the jobs have shown. It is there to tell how much is
// lost by having to learn.
type SwitchyardOracle struct{}

// Name is switchyard-oracle.
func (SwitchyardOracle) Name() string { return "switchyard-oracle" }

func (p SwitchyardOracle) decide(s State) train.Plan { return allot(s, p) }

func (SwitchyardOracle) grant(f *fleet) {
	b := openBook(f)
	b.oracle = true
	f.trade(b)
}

// trueSeconds is the time of a step.
func (c *speedCurve) trueSeconds(cfg train.Config, accumulation int) float64 {
	step, sync := c.truth.StepTime(cfg, c.model)
	return step + float64(accumulation)*(step-sync)
}

// bestTrue is the pace with the most goodput if steps have this gain.
func bestTrue(row []pace, gain func(globalBatch int) float64) (float64, int) {
	best, at := 0.0, 0
	for i := range row {
		if v := gain(int(row[i].global)) / row[i].seconds; v > best {
			best, at = v, i
		}
	}
	return best, at
}
