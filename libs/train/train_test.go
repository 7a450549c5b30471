package train_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
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
			if from.Terminal() {
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

func TestNearMiss(t *testing.T) {
	known := []string{"batch_size", "max_epochs", "name"}
	for word, want := range map[string]string{"batchsize": "batch_size", "max_epoch": "max_epochs", "nmae": "name", "gpu_flavour": ""} {
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
