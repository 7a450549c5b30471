package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// An array uses nothing itself: the account under its name says nothing of its jobs.
func TestAnArrayHasNoPowerOfItsOwn(t *testing.T) {
	text := Explain(Job{Job: train.Job{ID: "a", State: train.StateFailed, Spec: train.Spec{Array: "0-1"}}, Account: &train.Account{Final: true}}, time.Unix(0, 0))
	if strings.Contains(text.String(), "0.0 W") {
		t.Errorf("describe says of an array:\n%s", text)
	}
}

// The best value of a loss or an error is the lowest, of other metrics the highest, as in an experiment.
func TestTheBestValueGoesByTheNameOfTheMetric(t *testing.T) {
	epoch := func(n int, x float64) train.EpochEnergy {
		metrics := map[string]float64{"val_loss": x, "error": x, "accuracy": x, contract.NonfiniteSteps: x}
		return train.EpochEnergy{EpochsDone: n, Energy: unit.Energy(n) * unit.Joule, Loss: &x, Metrics: metrics}
	}
	p := page{sections: []Section{{}}}
	p.best(&train.EnergyProgress{Epochs: []train.EpochEnergy{epoch(1, 0.5), epoch(2, 0.2)}})
	got := map[string]string{}
	for _, part := range p.sections[0].Parts {
		_, got[strings.TrimSpace(part.Label)], _ = strings.Cut(part.Words, " to ")
	}
	lowest, highest := "0.2, the lowest so far, in epoch 2", "0.5, the highest so far, in epoch 1"
	want := map[string]string{"to loss": lowest, "to val_loss": lowest, "to error": lowest, "to accuracy": highest}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
