package train

import "testing"

func TestAWholePathIsNotForgottenForAPartOfIt(t *testing.T) {
	flow := func(port string) Flow { return Flow{Source: "a:" + port, Target: "b:1"} }
	before := []Path{{Flow: flow("1"), Hops: []string{"x"}, Complete: true}, {Flow: flow("2"), Hops: []string{"x"}, Complete: true}}
	found := Paths{Paths: []Path{{Flow: flow("1"), Hops: []string{"", ""}}, {Flow: flow("2"), Hops: []string{"y"}, Complete: true}, {Flow: flow("3"), Hops: []string{""}}}}
	found.KeepWhole(before)
	if got := found.Paths; !got[0].Same(before[0]) || got[1].Hops[0] != "y" || got[2].Complete {
		t.Errorf("%+v", got)
	}
	closed := Paths{Paths: []Path{{Flow: flow("1")}}}
	closed.KeepWhole(before)
	if !closed.Paths[0].Closed() {
		t.Errorf("of a flow whose port is in use the old path is kept: %+v", closed)
	}
}
