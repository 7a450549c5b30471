package curve

import (
	"fmt"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// oneEpoch is a history of an epoch of ten steps on so many workers.
func oneEpoch(workers int, seconds float64) History {
	return History{Kind: train.SpeedAllReduce, Epochs: []EpochRecord{{Epoch: 1, Seconds: seconds, Config: train.Config{Workers: workers, Nodes: 1, LocalBatch: 8}, Steps: 10}}}
}

func TestTeachings(t *testing.T) {
	var taught Teachings
	taught.Add("a", oneEpoch(1, 10))
	taught.Add("a", oneEpoch(2, 8))
	taught.Add("a", oneEpoch(1, 20)) // the newest counts
	taught.Add("", oneEpoch(1, 10))
	taught.Add("b", History{})
	steps := map[int]float64{}
	for _, s := range taught.Of("a") {
		steps[s.Config.Workers] = s.StepSeconds
	}
	if len(steps) != 2 || steps[1] != 2 || steps[2] != 0.8 || len(taught.Of("")) != 0 || len(taught.Of("b")) != 0 {
		t.Errorf("a: %v, nothing: %v, b: %v", steps, taught.Of(""), taught.Of("b"))
	}
	// What a job measures itself goes before what is lent.
	h := oneEpoch(1, 30).With(taught.Of("a"))
	if m := Refit(h); len(m.Speed.Measured) != 2 || m.Speed.StepSeconds(train.Config{Workers: 1, Nodes: 1, LocalBatch: 8}) != 3 || m.EpochsSeen != 1 {
		t.Errorf("%+v", m)
	}
}

func TestTeachingsAreBounded(t *testing.T) {
	var taught Teachings
	for i := range MaxTaught + 5 {
		taught.Add(fmt.Sprint(i), oneEpoch(1, 10))
	}
	if len(taught.bySignature) != MaxTaught || len(taught.order) != MaxTaught || taught.Of("0") != nil || taught.Of(fmt.Sprint(MaxTaught+4)) == nil {
		t.Errorf("%d signatures, %d in order", len(taught.bySignature), len(taught.order))
	}
}
