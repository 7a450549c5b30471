package records

import (
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// A gang spans nodes that one executor serves.
func TestNodesOfSeveralExecutorsKeepGangsApart(t *testing.T) {
	pods := func(id train.NodeID) train.Node { return train.Node{ID: id, Backend: train.BackendKubernetes} }
	for _, c := range []struct {
		name    string
		nodes   []train.Node
		oneNode bool
	}{
		{"none", nil, true},
		{"Kubernetes", []train.Node{pods("a"), pods("b")}, false},
		{"two machines", []train.Node{{ID: "a"}, {ID: "b"}}, true},
		{"a machine as two nodes", []train.Node{{ID: "a"}, {ID: "a2", Machine: "a"}}, false},
		{"a machine beside it", []train.Node{{ID: "a"}, {ID: "a2", Machine: "a"}, {ID: "b"}}, true},
		{"a machine beside Kubernetes", []train.Node{{ID: "a"}, pods("b")}, true},
	} {
		if got := OneNode(c.nodes); got != c.oneNode {
			t.Errorf("%s: a gang is kept on one node: %t, want %t", c.name, got, c.oneNode)
		}
	}
}
