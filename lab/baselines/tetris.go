package baselines

import (
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
)

// Tetris packs (Grandl et al., SIGCOMM'14): of the waiting jobs the next is the one whose request fits the free
// devices best and whose remaining work is small, both in equal parts on average. Running jobs stay. It knows the
// requests, the declared epochs and the step times that jobs of the same signature have shown.
type Tetris struct{ requested }

// Name is tetris.
func (Tetris) Name() string { return "tetris" }

// Decide starts waiting jobs in the order of their scores.
func (Tetris) Decide(r *policy.Round) {
	line := keepRunning(r)
	work := workLeft(bySubmission(r), line)
	for {
		best := tetrisBest(r, line, work)
		if best < 0 {
			return
		}
		pack(r, line[best], line[best].Least)
		line, work = slices.Delete(line, best, best+1), slices.Delete(work, best, best+1)
	}
}

// tetrisBest returns the gang with the highest score among those that fit; -1 if no gang fits.
func tetrisBest(r *policy.Round, line []*cluster.Gang, work []float64) int {
	free := r.Total - r.Ledger.Taken()
	fit := func(g *cluster.Gang) float64 {
		return float64(g.Least) / float64(r.Total) * float64(free) / float64(r.Total)
	}
	fits, sum := 0.0, 0.0
	for i, g := range line {
		fits += fit(g)
		sum += work[i]
	}
	weight := 0.0
	if sum > 0 {
		weight = fits / sum
	}
	best, score := -1, 0.0
	for i, g := range line {
		if g.Least > free {
			continue
		}
		if s := fit(g) - weight*work[i]; best < 0 || s > score {
			best, score = i, s
		}
	}
	return best
}

// workLeft is the device time that each gang of a line still needs, estimated from what all gangs have seen. A gang
// of unknown speed counts as the mean.
func workLeft(all, line []*cluster.Gang) []float64 {
	rates := secondsPerSample(all)
	typical, known := 0.0, 0.0
	work := make([]float64, len(line))
	for i, g := range line {
		if rate := rates[signature(g)]; rate > 0 {
			work[i] = rate * samplesLeft(g)
			typical += work[i]
			known++
		}
	}
	for i := range work {
		if work[i] == 0 {
			work[i] = typical / max(known, 1)
		}
	}
	return work
}

// secondsPerSample is how long a device takes for a sample, by signature: the mean over what the present jobs have
// seen.
func secondsPerSample(gangs []*cluster.Gang) map[string]float64 {
	sums, counts := map[string]float64{}, map[string]float64{}
	for _, g := range gangs {
		for _, s := range g.Ran() {
			sums[signature(g)] += (s.StepSeconds - s.SyncSeconds) / float64(max(s.LocalBatch, 1))
			counts[signature(g)]++
		}
	}
	for signature, count := range counts {
		sums[signature] /= count
	}
	return sums
}

// samplesLeft is what the user declared, less what is done.
func samplesLeft(g *cluster.Gang) float64 {
	return float64(g.Spec.TrainingSetSize) * float64(max(g.Spec.MaxEpochs-g.EpochsDone, 1))
}
