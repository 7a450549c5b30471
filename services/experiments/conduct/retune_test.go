package conduct

import (
	"math"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/services/experiments/file"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
	"github.com/switchyard-dl/switchyard/services/experiments/search"
)

// An epoch in which a change fell tells nothing of a setting, and is paid for all the same: where changes are slow the rule has less to lose, and tries less.
func TestEpochsThatTellNothingArePaidFor(t *testing.T) {
	for _, latency := range []time.Duration{50 * time.Millisecond, 3 * time.Second} {
		e := experiment(search.Random, file.PipeTune, 1)
		e.Job.MaxEpochs, e.Search.MaxEpochs = 40, 40
		e.System = []file.Factor{{Name: file.Cores, Values: []float64{8, 4, 2, 1}}, {Name: file.PowerLimit, Values: []float64{250, 200, 150, 100}}}
		w := newWorld(t, e)
		w.latency, w.cost = latency, func(_, cores float64) float64 { return 20 * math.Pow(8/cores, 0.2) }
		w.run()
		trial := &w.record.Trials[0]
		seen := w.record.pipelined(trial, profile.Store{})
		spent := seen.Changed
		for _, epoch := range seen.Ended {
			spent += epoch.Cost
		}
		if math.Abs(spent-trial.Seconds()) > 1e-6 {
			t.Errorf("with a latency of %s the rule sees %g s of %g", latency, spent, trial.Seconds())
		}
		if most := 1.03 * 40 * 20; len(trial.Settings) < 2 || trial.Seconds() > most {
			t.Errorf("with a latency of %s: %g s with %d settings, want some and at most %g s", latency, trial.Seconds(), len(trial.Settings), most)
		}
	}
}
