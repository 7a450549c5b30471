package cli

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// A job that shares its device shows its micro-batch in the list and in its description, and why it is that one.
func TestTheMicroBatchIsShown(t *testing.T) {
	s := clitest.New(t, Commands()...)
	tuning := train.Tuning{
		Node: "n", Device: "gpu:0", Generation: 12, Tried: 8, Settled: train.Reason{Code: "Tuned", Message: "the best of 8 trials"},
		Tenants: []train.TunedJob{{Job: "a", Attempt: 2, MicroBatch: 16, Accumulation: 4}, {Job: "b", Attempt: 1}},
	}
	clitest.Put(t, s.Bus, contract.Tunings, train.TuningKey("n", "gpu:0"), tuning)
	for id, attempt := range map[train.JobID]int{"a": 2, "b": 1, "earlier": 1} {
		j := clitest.Resnet()
		j.ID, j.Attempt = id, attempt
		clitest.PutJob(t, s.Bus, j)
		clitest.Put(t, s.Bus, contract.Attempts, string(id), train.Attempt{Job: id, Number: attempt, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Phase: train.PhaseRunning})
	}
	_, listed, _ := s.Run("ps", "-A")
	last := map[string]string{}
	for line := range strings.Lines(listed) {
		words := strings.Fields(line)
		last[words[0]] = words[len(words)-1]
	}
	if last["ID"] != "BATCH" || last["a"] != "16x4" || last["b"] != "-" || last["earlier"] != "-" {
		t.Errorf("%s", listed)
	}
	for id, want := range map[string]string{
		"a": "micro-batch 16 samples, 4 passes to a step, beside b\n            the best of 8 trials [Tuned] (generation 12, 8 trials)\n",
		"b": "micro-batch as submitted: the code does not follow a micro-batch, beside a 16x4\n",
	} {
		if _, out, _ := s.Run("describe", id); !strings.Contains(out, want) {
			t.Errorf("describe %s, want %q:\n%s", id, want, out)
		}
	}
}
