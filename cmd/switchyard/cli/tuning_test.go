package cli

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// A job that shares its device shows its micro-batch in the list and in its description, and why it is that one.
func TestTheMicroBatchIsShown(t *testing.T) {
	s := newTerminal(t)
	tuning := train.Tuning{
		Node: "n", Device: "gpu:0", Generation: 12, Tried: 8, Settled: train.Reason{Code: "Tuned", Message: "the best of 8 trials"},
		Tenants: []train.TunedTenant{{Job: "a", Attempt: 2, MicroBatch: 16, Accumulation: 4}, {Job: "b", Attempt: 1}},
	}
	put(t, s.bus, event.BucketTunings, train.TuningKey("n", "gpu:0"), tuning)
	for id, attempt := range map[train.JobID]int{"a": 2, "b": 1, "earlier": 1} {
		j := resnet()
		j.ID, j.Attempt = id, attempt
		putJob(t, s.bus, j)
		put(t, s.bus, event.BucketAttempts, string(id), train.Attempt{Job: id, Number: attempt, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Phase: train.PhaseRunning})
	}
	if err := s.ps(t.Context(), s.bus, psOptions{allUsers: true}, noon); err != nil {
		t.Fatal(err)
	}
	listed, _ := s.printed()
	last := map[string]string{}
	for line := range strings.Lines(listed) {
		words := strings.Fields(line)
		last[words[0]] = words[len(words)-1]
	}
	if last["ID"] != "BATCH" || last["a"] != "16x4" || last["b"] != "-" || last["earlier"] != "-" {
		t.Errorf("%s", listed)
	}
	for id, want := range map[string]string{
		"a": "micro-batch 16 samples, 4 passes to a step, beside b\n            Tuned - the best of 8 trials (generation 12, 8 trials)\n",
		"b": "micro-batch as submitted: the code does not follow a micro-batch, beside a 16x4\n",
	} {
		if err := s.describe(t.Context(), s.bus, id, noon); err != nil {
			t.Fatal(err)
		}
		if out, _ := s.printed(); !strings.Contains(out, want) {
			t.Errorf("describe %s, want %q:\n%s", id, want, out)
		}
	}
}
