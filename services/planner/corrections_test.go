package planner

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestAWrongPredictionIsCorrected(t *testing.T) {
	begin := time.Unix(1000, 0)
	plan := func(after, finish, start float64) train.Plan {
		p := train.Plan{DecidedAt: begin.Add(time.Duration(after * float64(time.Second))), Allocations: []train.Allocation{{Job: "a"}}, Waiting: []train.Waiting{{Job: "b"}}}
		if finish > 0 {
			p.Allocations[0].Forecast.Finish = &train.Span{Expected: finish}
		}
		if start > 0 {
			p.Waiting[0].Forecast.Start = &train.Span{Expected: start}
		}
		return p
	}
	for name, c := range map[string]struct {
		before, now train.Plan
		want        bool
	}{
		"time goes by":                        {plan(0, 100, 100), plan(30, 70, 70), false},
		"a little off":                        {plan(0, 100, 100), plan(30, 80, 72), false},
		"a twin has shown how long it takes":  {plan(0, 100, 5400), plan(30, 70, 60), true},
		"it takes longer":                     {plan(0, 100, 100), plan(30, 170, 170), true},
		"known at last":                       {plan(0, 0, 0), plan(30, 70, 70), true},
		"no longer known":                     {plan(0, 100, 100), plan(30, 0, 0), false},
		"far off, but the last plan is young": {plan(0, 100, 5400), plan(1, 70, 60), false},
		"seconds":                             {plan(0, 12, 12), plan(10, 6, 6), false},
	} {
		if got := differs(c.before, c.now); got != c.want {
			t.Errorf("%s: worth publishing is %v, want %v", name, got, c.want)
		}
	}
}
