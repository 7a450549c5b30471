package curve

import (
	"fmt"
	"math"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func stepOn(workers int, seconds float64) StepSample {
	return StepSample{Config: train.Config{Workers: workers, Nodes: 1, LocalBatch: 8}, StepSeconds: seconds, Weight: 10}
}

func TestTwinsAndKinLendTheirTimes(t *testing.T) {
	on := func(lent []StepSample, workers int) StepSample {
		for _, s := range lent {
			if s.Workers == workers {
				return s
			}
		}
		return StepSample{}
	}
	own, twins, kin := []StepSample{stepOn(1, 3)}, []StepSample{stepOn(1, 1), stepOn(2, 2)}, []StepSample{stepOn(2, 4), stepOn(4, 8)}

	alone := Lend(History{Kind: train.SpeedAllReduce}, nil, nil, kin)
	if s := on(alone, 4); s.StepSeconds != 8 || s.Error != kinError {
		t.Errorf("kin alone lend %+v", s)
	}
	before := Lend(History{Kind: train.SpeedAllReduce}, nil, twins, kin)
	if s := on(before, 2); math.Abs(s.StepSeconds-2) > 1e-9 || s.Error != twinError {
		t.Errorf("a twin lends %+v", s)
	}
	if s := on(before, 4); !(s.StepSeconds > 2 && s.StepSeconds < 5) || s.Error != scaledError {
		t.Errorf("kin scaled to a twin lend %+v, want about half of 8", s)
	}
	after := Lend(History{Kind: train.SpeedAllReduce}, own, nil, kin)
	if s := on(after, 1); s.Workers != 0 {
		t.Errorf("lent where the job has run: %+v", s)
	}
	if s := on(after, 4); s.StepSeconds <= 0 || s.Error != scaledError {
		t.Errorf("kin scaled to the job lend %+v", s)
	}
	// What is lent is part of the model, with its error, and the job's own time goes before.
	m := Refit(History{Kind: train.SpeedAllReduce, Steps: own}.With(Lend(History{Kind: train.SpeedAllReduce}, own, twins, nil)))
	if got := m.Speed.StepSeconds(stepOn(1, 0).Config); got != 3 {
		t.Errorf("%v s a step where the job has run, want 3", got)
	}
	if got := m.Speed.RelativeError(stepOn(2, 0).Config); got != twinError {
		t.Errorf("error %v of a lent time, want %v", got, twinError)
	}
}

func TestKinThatDisagreeSayLess(t *testing.T) {
	agree := Lend(History{Kind: train.SpeedAllReduce}, nil, nil, []StepSample{stepOn(1, 1), stepOn(1, 1.01), stepOn(1, 0.99), stepOn(1, 1)})
	differ := Lend(History{Kind: train.SpeedAllReduce}, nil, nil, []StepSample{stepOn(1, 0.2), stepOn(1, 5), stepOn(1, 1), stepOn(1, 1)})
	if agree[0].Error > 0.15 || differ[0].Error < 0.9 || math.Abs(differ[0].StepSeconds-1) > 1e-9 {
		t.Errorf("agreeing: %+v, disagreeing: %+v", agree, differ)
	}
}

func TestShelvesAreBounded(t *testing.T) {
	var s Shelf[int]
	for i := range MaxFamilies + 5 {
		s.Put(fmt.Sprint(i), []int{i})
	}
	if len(s.byName) != MaxFamilies || len(s.order) != MaxFamilies || s.Of("0") != nil || s.Of(fmt.Sprint(MaxFamilies+4)) == nil {
		t.Errorf("%d families, %d in order", len(s.byName), len(s.order))
	}
}
