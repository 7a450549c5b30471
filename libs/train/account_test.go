package train

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestTheFirstEpochThatIsGoodEnoughIsKept(t *testing.T) {
	least, most := 0.7, 1.5
	epochs := []EpochEnergy{
		{Metrics: map[string]float64{"accuracy": 0.6}, Loss: new(1.4)}, {}, {Metrics: map[string]float64{"accuracy": 0.7}, Loss: new(1.6)}, {Metrics: map[string]float64{"accuracy": 0.8}},
	}
	for _, c := range []struct {
		target *TargetSpec
		want   int
	}{
		{nil, 0},
		{&TargetSpec{Metric: "accuracy", AtLeast: &least}, 3},
		{&TargetSpec{Metric: "loss", AtMost: &most}, 1},
		{&TargetSpec{Metric: "f1", AtLeast: &least}, 0},
	} {
		var progress EnergyProgress
		for i, e := range epochs {
			e.Attempt, e.EpochsDone, e.Energy = 1, i+1, unit.Energy(10*(i+1))
			progress.Mark(e, 0)
			progress.Aim(c.target)
			progress.Aim(c.target)
		}
		got := 0
		if progress.Target != nil {
			got = progress.Target.EpochsDone
		}
		if got != c.want || got > 0 && progress.Target.Energy != unit.Energy(10*got) {
			t.Errorf("%+v: %+v, want epoch %d", c.target, progress.Target, c.want)
		}
	}
}

func TestALongCourseIsThinnedOut(t *testing.T) {
	var c EnergyProgress
	c.Begin(1, 0)
	const epochs = 10_000
	for i := range epochs {
		if !c.Mark(EpochEnergy{Attempt: 1, EpochsDone: i + 1, Energy: unit.Energy(10 * (i + 1))}, 7) {
			t.Fatalf("epoch %d was noted before", i+1)
		}
		if n := len(c.Epochs); n > mostEpochsKept || c.Epochs[n-1].EpochsDone != i+1 {
			t.Fatalf("after epoch %d: %d are kept, the newest is %d", i+1, n, c.Epochs[n-1].EpochsDone)
		}
	}
	longest := 0
	for i := 1; i < len(c.Epochs); i++ {
		longest = max(longest, c.Epochs[i].EpochsDone-c.Epochs[i-1].EpochsDone)
	}
	if longest > epochs/32 || c.Samples != 7*epochs || len(c.Losses) != 0 {
		t.Errorf("%d epochs between two, %d samples, losses %v", longest, c.Samples, c.Losses)
	}
}

func TestEpochsMayBeMarkedAgain(t *testing.T) {
	var c EnergyProgress
	c.Begin(1, 0)
	c.Begin(1, 5)
	c.Mark(EpochEnergy{Attempt: 1, EpochsDone: 1, Energy: 10}, 1)
	if c.Mark(EpochEnergy{Attempt: 1, EpochsDone: 1, Energy: 12}, 1) || c.Mark(EpochEnergy{Attempt: 0, EpochsDone: 9, Energy: 12}, 1) {
		t.Error("an old epoch was noted again")
	}
	c.Begin(2, 13)
	c.Begin(2, 14)
	if c.Samples != 1 || len(c.Epochs) != 1 || len(c.Losses) != 1 || c.Losses[0] != (Loss{1, 3}) {
		t.Errorf("%+v", c)
	}
}

func TestTheBestEpoch(t *testing.T) {
	c := EnergyProgress{Epochs: []EpochEnergy{{EpochsDone: 1, Energy: 10}, {EpochsDone: 2, Energy: 20, Loss: new(0.5)}, {EpochsDone: 3, Energy: 30, Loss: new(0.25)}}}
	loss := func(e EpochEnergy) (float64, bool) {
		if e.Loss == nil {
			return 0, false
		}
		return *e.Loss, true
	}
	if best, ok := c.Best(loss, true); !ok || best.EpochsDone != 3 {
		t.Errorf("%+v, %v", best, ok)
	}
	if _, ok := (&EnergyProgress{}).Best(loss, true); ok {
		t.Error("the best of nothing")
	}
}
