package train_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func TestJobIDsAreOneTokenAndOnePathComponent(t *testing.T) {
	for _, good := range []string{"a", "resnet-50_x", "4F2A", strings.Repeat("a", train.MaxIDLength)} {
		if _, err := train.ParseJobID(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a.b", "../x", "a/b", "a b", "-a", ">", "*", "é", "a\x00", strings.Repeat("a", train.MaxIDLength+1)} {
		if _, err := train.ParseJobID(bad); err == nil {
			t.Errorf("%q is taken for an id", bad)
		}
	}
}

func TestTransitionsAreDeterministicAndTerminalStatesAbsorb(t *testing.T) {
	seen := map[[2]string]train.State{}
	for _, row := range train.Transitions() {
		for _, from := range row.From {
			// What has ended may be resumed, and be given another spec for that.
			resumes, edits := row.Fact == "wanted" && row.To == train.StateQueued, strings.HasPrefix(row.Fact, "edit_") && row.To == train.SameState
			if from.Terminal() && !resumes && !edits {
				t.Errorf("fact %s leads out of %s, which is terminal", row.Fact, from)
			}
			key := [2]string{string(from), row.Fact}
			if to, twice := seen[key]; twice {
				t.Errorf("fact %s in state %s leads to %s and to %s", row.Fact, from, to, row.To)
			}
			seen[key] = row.To
		}
	}
	for _, s := range []train.State{train.StateSucceeded, train.StateFailed, train.StateCancelled, train.StateRejected} {
		if _, err := train.Next(s, "started"); !errors.Is(err, train.ErrIllegal) {
			t.Errorf("started in %s: %v", s, err)
		}
		_, err := train.Next(s, "wanted")
		if may := s == train.StateFailed || s == train.StateCancelled; may != (err == nil) {
			t.Errorf("wanted in %s: %v", s, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	s := train.Spec{MaxDevices: 4, SingleDevice: true}.WithDefaults()
	if s.MaxDevices != 1 || s.MinDevices != 1 || s.Strategy != train.StrategyNone || *s.Priority != 50 || *s.MaxRestarts != 3 || s.Launch != train.LaunchPerNode {
		t.Errorf("single device: %+v", s)
	}
	if s := (train.Spec{MaxDevices: 4}).WithDefaults(); s.Strategy != train.StrategyAllReduce {
		t.Errorf("strategy %q for four devices", s.Strategy)
	}
	if n := (train.Spec{BatchSize: 32, TrainingSetSize: 1000}).StepsPerEpoch(2); n != 15 {
		t.Errorf("%d steps, want 15 as the upstream library counts", n)
	}
}

func TestPartsOfADevice(t *testing.T) {
	counted := train.Device{Memory: 24*unit.GiB - 512*unit.MiB, Units: 23}
	for asked, want := range map[unit.Bytes]unit.Bytes{
		0: 0, unit.MiB: counted.Memory / 23, 12 * unit.GiB: counted.Memory * 12 / 23, counted.Memory: counted.Memory, counted.Memory + 1: 0,
	} {
		got := counted.Share(asked)
		if got != want || got > 0 && (got < asked || counted.Share(got) != got) {
			t.Errorf("%s is %d bytes, want %d", asked, got, want)
		}
	}
	if got := []int{counted.UnitsOf(0), counted.UnitsOf(1), counted.UnitsOf(12 * unit.GiB), counted.UnitsOf(counted.Memory)}; !slices.Equal(got, []int{23, 1, 12, 23}) {
		t.Errorf("units %v", got)
	}
	plain := train.Device{Memory: 8 * unit.GiB}
	if got := plain.Share(3 * unit.MiB); got != 3*unit.MiB {
		t.Errorf("a device without units gives %s", got)
	}
	instance := train.Device{Memory: 20 * unit.GiB, Enforcement: train.EnforcedByMIG}
	if got := instance.Share(unit.GiB); got != 0 {
		t.Errorf("%s of an instance of a partitioned GPU: it is a part itself", got)
	}
	if got := (&train.Device{Memory: 20 * unit.GiB, Units: 1, Enforcement: train.GivenWhole}).Share(unit.GiB); got != 0 {
		t.Errorf("%s of a device that is given out whole", got)
	}
	if got := train.Weakest([]train.Device{instance, {Enforcement: train.EnforcedByMPS}}); got != train.EnforcedByMPS || train.Weakest(nil) != "" || train.Weakest([]train.Device{{}}) != train.NotEnforced {
		t.Errorf("the weakest level is %s", got)
	}
	if got := (&train.Device{}).Share(1); got != 0 {
		t.Errorf("a device that does not tell its memory gives %s", got)
	}
}

func TestWhoShares(t *testing.T) {
	sharing := func(change func(*train.Spec)) unit.Bytes {
		s := train.Spec{AllowSharing: true, EstimatedMemoryMiB: 1024}
		change(&s)
		return s.WithDefaults().SharedMemory()
	}
	for _, devices := range []int{1, 2} {
		if got := sharing(func(s *train.Spec) { s.MaxDevices = devices }); got != unit.GiB {
			t.Errorf("on %d devices a part of %s of each", devices, got)
		}
	}
	for name, change := range map[string]func(*train.Spec){
		"not asked for": func(s *train.Spec) { s.AllowSharing = false },
		"forbidden":     func(s *train.Spec) { s.DisableSharing = true },
		"servers":       func(s *train.Spec) { s.Strategy = train.StrategyParameterServer },
		"no memory":     func(s *train.Spec) { s.EstimatedMemoryMiB = 0 },
	} {
		if got := sharing(change); got != 0 {
			t.Errorf("%s: a part of %s", name, got)
		}
	}
}

func TestNearMiss(t *testing.T) {
	known := []string{"batch_size", "max_epochs", "name", " "}
	for word, want := range map[string]string{"batchsize": "batch_size", "max_epoch": "max_epochs", "nmae": "name", "gpu_flavour": "", "a": ""} {
		if got := train.NearMiss(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestLabelsOfNodes(t *testing.T) {
	n := train.Node{Labels: map[string]string{"tier": "fast", "empty": ""}}
	for _, tt := range []struct {
		asked map[string]string
		want  bool
	}{
		{nil, true},
		{map[string]string{"tier": "fast"}, true},
		{map[string]string{"tier": "fast", "empty": ""}, true},
		{map[string]string{"tier": "slow"}, false},
		{map[string]string{"tier": "fast", "none": ""}, false},
	} {
		if got := n.Has(tt.asked); got != tt.want {
			t.Errorf("has %v: %v", tt.asked, got)
		}
	}
	for label, want := range map[[2]string]bool{
		{"gpushare", "true"}: true, {"example.com/tier", ""}: true, {"a", "B_c.d-9"}: true,
		{"", "x"}: false, {"/a", "x"}: false, {"a/", "x"}: false, {"a/b/c", "x"}: false, {"a", "-x"}: false, {"a.", "x"}: false, {"a", "é"}: false, {strings.Repeat("a", 64), ""}: false,
	} {
		if got := train.IsLabel(label[0], label[1]); got != want {
			t.Errorf("label %q: %v", label, got)
		}
	}
	if got := train.JoinLabels(map[string]string{"b": "2", "a": "1"}); got != "a=1,b=2" {
		t.Error(got)
	}
}
