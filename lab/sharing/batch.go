package sharing

import (
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/services/planner/tune"
)

// Tuned is the result of tuning the batches of two families beside each other.
type Tuned struct {
	GPU string `json:"gpu"`
	// ModelA and ModelB are the two families.
	ModelA string `json:"model_a"`
	ModelB string `json:"model_b"`
	// BatchA and BatchB are the tuned batches.
	BatchA int `json:"batch_a"`
	BatchB int `json:"batch_b"`
	// Cells is the size of the grid, Evaluations the number of tried cells, OutOfMemory the number of these that did
	// not fit.
	Cells       int `json:"cells"`
	Evaluations int `json:"evaluations"`
	OutOfMemory int `json:"oom_evaluations"`
	// Score is the sum over both jobs of samples/s relative to their best samples/s alone, BestScore the highest on
	// the grid.
	Score     float64 `json:"score"`
	BestScore float64 `json:"best_score"`
	Relative  float64 `json:"relative_score"`
}

// TuneAll tunes every pair of families that can share a device, a family beside itself included. The live planner's
// tuner reads one cell of the grid with each trial. It knows the speeds alone and the declared memory.
func TuneAll(table Table, gpu string) []Tuned {
	var families [][]curve.Kind
	for _, kind := range table.Kinds() {
		if n := len(families); n > 0 && families[n-1][0].Family == kind.Family {
			families[n-1] = append(families[n-1], kind)
		} else {
			families = append(families, []curve.Kind{kind})
		}
	}
	var all []Tuned
	for i, a := range families {
		for _, b := range families[i:] {
			if t := tunePair(table, a, b); t.BestScore > 0 {
				t.GPU, t.ModelA, t.ModelB = gpu, a[0].Family, b[0].Family
				all = append(all, t)
			}
		}
	}
	return all
}

// memorySlack allows for errors of declarations: a pair that declares 1.07 of the device did run.
const memorySlack = 0.1

func tunePair(table Table, a, b []curve.Kind) Tuned {
	first, second := table.family(a), table.family(b)
	score := func(i, k int) float64 {
		return first.Alone[i]*table.Rates[curve.KindPair{Self: a[i], Beside: b[k]}] + second.Alone[k]*table.Rates[curve.KindPair{Self: b[k], Beside: a[i]}]
	}
	t := Tuned{Cells: len(a) * len(b)}
	for i := range a {
		for k := range b {
			t.BestScore = max(t.BestScore, score(i, k))
		}
	}
	round := tune.Round{Tenants: []tune.Tenant{first, second}, Start: []int{len(a) / 2, len(b) / 2}, MemoryLimit: 1 + memorySlack}
	var trials []tune.Trial
	for {
		choice, more := round.Next(trials)
		if !more {
			break
		}
		trials = append(trials, tune.Trial{Choice: choice, Progress: score(choice[0], choice[1])})
		if trials[len(trials)-1].Progress == 0 {
			t.OutOfMemory++
		}
	}
	settled := round.Settle(trials)
	t.Evaluations, t.Score = len(trials), score(settled[0], settled[1])
	t.BatchA, t.BatchB, t.Relative = a[settled[0]].LocalBatch, b[settled[1]].LocalBatch, t.Score/t.BestScore
	return t
}

// family is a family of models with the batches that were measured, in ascending order.
func (t Table) family(kinds []curve.Kind) tune.Tenant {
	var one tune.Tenant
	most := 0.0
	for _, kind := range kinds {
		most = max(most, t.SamplesPerSecond[kind])
	}
	for _, kind := range kinds {
		one.Batches = append(one.Batches, max(kind.LocalBatch, 1))
		one.Alone = append(one.Alone, t.SamplesPerSecond[kind]/most)
		one.Memory = append(one.Memory, t.Memory[kind])
	}
	return one
}
