package executor

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
)

// A job that was limited to its share and ran out of it needs more next time, up to the whole device. Without a
// limit, its use is measured instead.
func TestNeedsMoreThanItsLimit(t *testing.T) {
	e := &executor{shared: &shared{cache: newCache(diff.Realm{})}}
	e.cache.realm.Nodes["n"] = train.Node{ID: "n", JobAPI: "127.0.0.1:1", Devices: []train.Device{{ID: "gpu:0", Memory: 16 * unit.GiB}, {ID: "gpu:1", Memory: 12 * unit.GiB}}}
	full := &train.Exit{Code: 1, LogTail: "torch.OutOfMemoryError: CUDA out of memory."}
	both := []train.DeviceID{"gpu:0", "gpu:1"}
	for _, c := range []struct {
		name     string
		part     unit.Bytes
		level    train.Enforcement
		exit     *train.Exit
		node     train.NodeID
		enlarged bool
		want     unit.Bytes
	}{
		{"half as much again", 6 * unit.GiB, train.EnforcedByMPS, full, "n", false, 9 * unit.GiB},
		{"no more than the smallest device has", 10 * unit.GiB, train.EnforcedByMPS, full, "n", false, 12 * unit.GiB},
		{"not held to it", 6 * unit.GiB, train.EnforcedByAdvice, full, "n", false, 0},
		{"the whole device", 0, train.EnforcedByMPS, full, "n", false, 0},
		{"another failure", 6 * unit.GiB, train.EnforcedByMPS, &train.Exit{Code: 1}, "n", false, 0},
		{"larger steps than submitted", 6 * unit.GiB, train.EnforcedByMPS, full, "n", true, 0},
		{"no node", 6 * unit.GiB, train.EnforcedByMPS, full, "gone", false, 0},
	} {
		report := train.AttemptReport{Enlarged: c.enlarged}
		if got := e.memoryNeeded(train.Attempt{Job: "j", Node: c.node, Devices: both, Memory: c.part, Enforcement: c.level, Exit: c.exit}, report); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
