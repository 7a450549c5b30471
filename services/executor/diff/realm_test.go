package diff

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// A machine that presents itself as several nodes has one executor, which runs gangs over them.
func TestTheExecutorOfAMachineServesItsNodes(t *testing.T) {
	own := Realm{
		Realm: train.Realm{Machine: "m"}, Nodes: map[train.NodeID]train.Node{"m": {ID: "m"}, "m2": {ID: "m2", Machine: "m"}},
	}
	on := func(nodes ...train.NodeID) train.Allocation {
		w := train.Allocation{Job: "j"}
		for _, n := range nodes {
			w.Parts = append(w.Parts, train.Part{Node: n, Devices: []train.DeviceID{"gpu:0"}})
		}
		return w
	}
	for _, n := range own.Nodes {
		if n.Realm() != own.Realm {
			t.Errorf("node %s is of realm %+v, want %+v", n.ID, n.Realm(), own.Realm)
		}
	}
	if !own.reaches(on("m", "m2")) || own.reaches(on("m", "other")) {
		t.Error("want a gang over both nodes of the machine to be started here, and none with a node of another")
	}
	gang := train.Attempt{Job: "j", Machine: "m"}
	gang.SetPlaces(on("m", "m2").Parts)
	for _, a := range []train.Attempt{{Node: "m"}, {Node: "m2", Machine: "m"}, gang} {
		if !own.Owns(a) {
			t.Errorf("the attempt %+v is not owned", a)
		}
	}
	for _, a := range []train.Attempt{{Node: "other"}, {Node: "o2", Machine: "other"}, {Node: "m", Backend: train.BackendKubernetes}} {
		if own.Owns(a) {
			t.Errorf("the attempt %+v is owned", a)
		}
	}
}

// A job was lost on a machine and is planned on another one: the executor there looks again when the delay is over,
// although the attempt was not its own.
func TestAJobThatWaitsForItsNextAttemptIsDueOnEveryMachine(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	lost := train.Attempt{Job: "j", Number: 1, Node: "other", Phase: train.PhaseExited, Outcome: train.OutcomeRecovering, Published: true, NotBefore: now.Add(time.Second)}
	s := State{
		Now: now, Realm: Realm{Realm: train.Realm{Machine: "m"}, Nodes: map[train.NodeID]train.Node{"m": {ID: "m"}}},
		Jobs: map[train.JobID]train.Job{"j": {ID: "j", State: train.StateRecovering}}, Attempts: map[train.JobID]train.Attempt{"j": lost},
	}
	if due := Due(s, Limits{}); !due["j"].Equal(lost.NotBefore) {
		t.Errorf("due at %v, want %s", due, lost.NotBefore)
	}
}
