package predictions

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// observedConfigurations are the numbers of observed configurations after which the speed is predicted.
func observedConfigurations() []int { return []int{1, 2, 4, 8} }

// speedRuns is the number of random lives of each application.
const speedRuns = 20

// speedOutcome is the prediction of one step time on a configuration that has not run.
type speedOutcome struct {
	observed        int
	heldOut, inside bool
	// Relative errors of the fit, and of the step time of the nearest configuration that ran.
	off, nearest float64
}

// speeds plays jobs that run on one device first and then on random configurations at their own batch sizes.
func (p paces) speeds(seed uint64) []speedOutcome {
	var all []speedOutcome
	for life := range uint64(speedRuns) {
		order := rand.New(rand.NewPCG(seed, life)).Perm(len(p.samples))
		first := slices.IndexFunc(order, func(i int) bool { return p.samples[i].Workers == 1 })
		if first < 0 {
			return nil
		}
		order[0], order[first] = order[first], order[0]
		for _, n := range observedConfigurations() {
			var seen []curve.StepSample
			for _, i := range order[:min(n, len(order))] {
				seen = append(seen, curve.StepSample(p.samples[i]))
			}
			fit, err := curve.FitStepTime(seen, p.prior)
			if err != nil {
				continue
			}
			all = append(all, p.predict(fit)...)
		}
	}
	return all
}

// predict asks a fit for every configuration that has not run.
func (p paces) predict(fit train.Speed) []speedOutcome {
	var all []speedOutcome
	for _, s := range p.samples {
		if _, ran := fit.Observed(s.Config); ran {
			continue
		}
		next := nearest(fit.Measured, s.Config)
		o := speedOutcome{observed: len(fit.Measured), heldOut: p.heldOut}
		o.off = relative(fit.StepSeconds(s.Config), s.StepSeconds, s.StepSeconds)
		o.inside = o.off <= fit.RelativeError(s.Config)
		o.nearest = relative(next.StepSeconds, s.StepSeconds, s.StepSeconds)
		all = append(all, o)
	}
	return all
}

// nearest is the observed configuration with the fewest doublings to another.
func nearest(seen []train.Measured, c train.Config) train.Measured {
	best, least := seen[0], math.Inf(1)
	for _, m := range seen {
		away := 0.0
		for _, pair := range [][2]int{{m.Workers, c.Workers}, {m.Nodes, c.Nodes}, {m.LocalBatch, c.LocalBatch}} {
			away += math.Abs(math.Log2(float64(pair[0]) / float64(pair[1])))
		}
		if away < least {
			best, least = m, away
		}
	}
	return best
}
