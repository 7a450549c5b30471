package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/explain"
)

// TestAPlanSaysWhyABatchWasChosen: a step of b samples takes 10 ms and 1 ms for each sample. By the noise alone, the
// larger the better; with little noise, the base batch is the best.
func TestAPlanSaysWhyABatchWasChosen(t *testing.T) {
	ran := func(batches ...int) (all []train.Ran) {
		for _, b := range batches {
			all = append(all, train.Ran{Config: train.Config{Workers: 1, Nodes: 1, LocalBatch: b}, StepSeconds: 0.01 + 0.001*float64(b)})
		}
		return all
	}
	for _, c := range []struct {
		name  string
		model train.Model
		max   int
		code  string
	}{
		{"nothing is known", train.Model{}, 256, explain.BatchNoiseUnknown},
		{"noise, all sizes known", train.Model{Efficiency: &train.Efficiency{Variance: 4, Square: 1, BaseBatch: 16}, Ran: ran(16, 32, 64, 128, 256)}, 256, explain.BatchMostProgress},
		{"much noise", train.Model{Efficiency: &train.Efficiency{Variance: 1e6, Square: 1, BaseBatch: 16}, Ran: ran(16, 32, 64)}, 64, explain.BatchAtMost},
		{"little noise", train.Model{Efficiency: &train.Efficiency{Variance: 0.01, Square: 1, BaseBatch: 16}, Ran: ran(16, 32, 64)}, 64, explain.BatchAtLeast},
		{"noise that may pay for more", train.Model{Efficiency: &train.Efficiency{Variance: 2.5, Square: 1, BaseBatch: 16}, Ran: ran(16)}, 256, explain.BatchTried},
	} {
		s := newShop(1, 1)
		s.submit(c.name, 1000)
		j := &s.state.Jobs[0]
		j.Model, j.Spec.MaxDevices = &c.model, 1
		j.Spec.AdaptiveBatch = &train.AdaptiveBatchSpec{Max: c.max, MaxPerDevice: c.max}
		a := Decide(s.state, Switchyard{}).Allocations[0]
		if a.BatchChoice == nil {
			t.Fatalf("%s: no reason for %+v", c.name, a.Batch)
		}
		choice := *a.BatchChoice
		if choice.Reason.Code != c.code {
			t.Errorf("%s: %s - %s, want %s", c.name, choice.Reason.Code, choice.Reason, c.code)
		}
		chosen := slices.IndexFunc(choice.Options, func(o train.BatchOption) bool { return o.Chosen })
		if chosen < 0 || choice.Options[chosen].Batch != a.Batch || choice.Options[chosen].GlobalBatch != a.Batch.Global(1) {
			t.Fatalf("%s: %+v is not among %+v", c.name, a.Batch, choice.Options)
		}
		for i, o := range choice.Options {
			if better := o.Goodput > choice.Options[chosen].Goodput; better && c.code != explain.BatchTried {
				t.Errorf("%s: option %d makes more progress than the chosen one: %+v", c.name, i, choice.Options)
			}
		}
		if known := c.model.Efficiency != nil; known != strings.Contains(choice.Reason.Message, "steps of ") {
			t.Errorf("%s: %q compares with its neighbours only if the noise is known", c.name, choice.Reason.Message)
		}
	}
}
