package curve

import (
	"fmt"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// oneEpoch is a history of one epoch of ten steps on a number of workers.
func oneEpoch(workers int, seconds float64) History {
	return History{Kind: train.SpeedAllReduce, Epochs: []EpochRecord{{Epoch: 1, Seconds: seconds, Config: train.Config{Workers: workers, Nodes: 1, LocalBatch: 8}, Steps: 10}}}
}

func TestSampleLibrary(t *testing.T) {
	var library SampleLibrary
	library.Add("a", oneEpoch(1, 10))
	library.Add("a", oneEpoch(2, 8))
	library.Add("a", oneEpoch(1, 20)) // the newest counts
	library.Add("", oneEpoch(1, 10))
	library.Add("b", History{})
	steps := map[int]float64{}
	for _, s := range library.Of("a") {
		steps[s.Config.Workers] = s.StepSeconds
	}
	if len(steps) != 2 || steps[1] != 2 || steps[2] != 0.8 || len(library.Of("")) != 0 || len(library.Of("b")) != 0 {
		t.Errorf("a: %v, nothing: %v, b: %v", steps, library.Of(""), library.Of("b"))
	}
	// A job's own measurements take precedence over those of others.
	h := oneEpoch(1, 30).With(library.Of("a"))
	if m := Refit(h); len(m.Speed.Measured) != 2 || m.Speed.StepSeconds(train.Config{Workers: 1, Nodes: 1, LocalBatch: 8}) != 3 || m.EpochsSeen != 1 {
		t.Errorf("%+v", m)
	}
}

func TestSampleLibraryAreBounded(t *testing.T) {
	var library SampleLibrary
	for i := range MaxSignatures + 5 {
		library.Add(fmt.Sprint(i), oneEpoch(1, 10))
	}
	if len(library.byName) != MaxSignatures || len(library.order) != MaxSignatures || library.Of("0") != nil || library.Of(fmt.Sprint(MaxSignatures+4)) == nil {
		t.Errorf("%d signatures, %d in order", len(library.byName), len(library.order))
	}
}
