package plan

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// On nodes with two models of GPU no device is given twice, no job that asks for a model newly gets another, and a job
// that cannot be asked to leave keeps all that it runs on.
func TestMixedNodesKeepThePromises(t *testing.T) {
	for _, name := range PolicyNames() {
		t.Run(name, func(t *testing.T) {
			policy, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) {
				d := &day{t: t, dice: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "day"), 1)), state: State{Now: time.Unix(1000, 0), Tuning: live()}, models: 2}
				d.terms()
				for range rapid.IntRange(1, 8).Draw(t, "rounds") {
					d.change()
					p := Decide(d.state, policy)
					checkDevices(t, d.state, p)
					checkComplete(t, d.state, p)
					checkRepeatable(t, d.state, policy, p)
					for _, j := range d.state.Jobs {
						checkModels(t, d.state, p, j)
					}
					d.apply(p)
				}
			})
		})
	}
}

func checkModels(t *rapid.T, s State, p train.Plan, j Job) {
	a, has := p.Find(j.ID)
	if silent(j) && !j.CancelRequested && alive(s, j.Running.Holding) && (!has || !train.SameDevices(a.Devices, j.Running.Devices)) {
		t.Fatalf("%s never spoke and runs on %v, planned %+v", j.ID, j.Running.Holding, a)
	}
	if !has || j.Spec.GPU == "" || j.Planned != nil || j.Running != nil { // what it runs on may have changed its model
		return
	}
	n := s.Nodes[slices.IndexFunc(s.Nodes, func(n train.Node) bool { return n.ID == a.Node })]
	for _, d := range n.Devices {
		if slices.Contains(a.Devices, d.ID) && d.Model != j.Spec.GPU {
			t.Fatalf("%s needs %s and gets %s of node %s, a %s:\n%s", j.ID, j.Spec.GPU, d.ID, n.ID, d.Model, words(p))
		}
	}
}
