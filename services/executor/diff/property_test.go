package diff

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Whatever plans come in, even plans that give a device to several jobs, however attempts end and whenever the
// executor is interrupted between two actions: no device is held twice, an attempt starts only after the end of the
// one before it was seen and published, and what has ended stays ended.
func TestPromisesHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		if rapid.Bool().Draw(t, "cluster") {
			w.Realm = Realm{Realm: train.Realm{Backend: train.BackendKubernetes}, Nodes: map[train.NodeID]train.Node{"n1": machine("n1"), "n2": machine("n2")}}
		}
		retries := []*int{nil, nil, new(2), new(0)}
		for i := range 4 {
			restarts := 2
			id := train.JobID(fmt.Sprintf("j%d", i))
			w.Jobs[id] = train.Job{ID: id, State: train.StateQueued, Spec: train.Spec{MaxEpochs: 5, MaxRestarts: &restarts, Retries: retries[i]}}
		}
		job := rapid.SampledFrom(w.ids())
		t.Repeat(map[string]func(*rapid.T){
			"plan": func(t *rapid.T) { w.accept(drawPlan(t, w)) },
			"act": func(t *rapid.T) {
				// All of them, or the first few before the executor is killed.
				actions := w.actions()
				for _, a := range actions[:rapid.IntRange(0, len(actions)).Draw(t, "done")] {
					if err := w.act(a); err != nil {
						t.Fatal(err)
					}
				}
			},
			"exit": func(t *rapid.T) {
				w.exit(job.Draw(t, "job"), train.Exit{
					Code: rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "code"), Signal: rapid.SampledFrom([]string{"", "", "SIGKILL"}).Draw(t, "signal"),
					Lost: rapid.Bool().Draw(t, "lost"),
				})
			},
			"trouble": func(t *rapid.T) {
				w.trouble(job.Draw(t, "job"), train.Exit{Lost: true, Unstarted: rapid.Bool().Draw(t, "unstarted")})
			},
			"report": func(t *rapid.T) {
				id := job.Draw(t, "job")
				a := w.Attempts[id]
				r := w.Reports[ReportKey{id, a.Number}]
				r.Job, r.Attempt, r.Spoke = id, a.Number, true
				r.EpochsDone = max(r.EpochsDone, a.StartedEpochs) + rapid.IntRange(0, 1).Draw(t, "epochs")
				r.StopAnswered = r.StopAnswered || a.Stop != train.StopNone
				w.Reports[ReportKey{id, a.Number}] = r
			},
			"wish": func(t *rapid.T) {
				id := job.Draw(t, "job")
				why := train.Reason{Code: rapid.SampledFrom([]string{"Retuned", ""}).Draw(t, "restart")}
				w.Retunes[ReportKey{id, w.Attempts[id].Number}] = why
			},
			"cancel": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "rarely") == 0 {
					id := job.Draw(t, "job")
					j := w.Jobs[id]
					j.CancelRequested = true
					w.Jobs[id] = j
				}
			},
			"want": func(t *rapid.T) {
				id := job.Draw(t, "job")
				j := w.Jobs[id]
				want := rapid.SampledFrom([]train.Want{train.WantRun, train.WantRun, train.WantHeld, train.WantPaused}).Draw(t, "want")
				w.want(&j, train.Wanted{State: want, Force: rapid.Bool().Draw(t, "force")}, want == train.WantRun && rapid.Bool().Draw(t, "requeue"))
				w.Jobs[id] = j
			},
			"forget": func(t *rapid.T) { // long after the end
				id := job.Draw(t, "job")
				if a := w.Attempts[id]; w.Jobs[id].State.Terminal() && a.Published {
					j := w.Jobs[id]
					j.Attempt = max(j.Attempt, a.Number)
					w.Jobs[id] = j
					delete(w.Attempts, id)
				}
			},
			"register": func(t *rapid.T) {
				if err := w.fold(); err != nil {
					t.Fatal(err)
				}
			},
			"pass": func(t *rapid.T) {
				w.Now = w.Now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "seconds")) * time.Second)
			},
			"": func(t *rapid.T) {
				if err := w.oversubscribed(); err != nil {
					t.Fatal(err)
				}
			},
		})
		// Left alone, everything settles, and cancelled jobs have ended. The waits for late reports count from when an exit
		// is first seen, so the day passes after that.
		for range 2 {
			if _, err := w.settle(); err != nil {
				t.Fatal(err)
			}
			w.Now = w.Now.Add(24 * time.Hour)
		}
		for _, id := range w.ids() {
			if j := w.Jobs[id]; j.CancelRequested && !j.State.Terminal() {
				t.Fatalf("%s shall end and is %s: %+v", id, j.State, w.Attempts[id])
			}
		}
		if slices.Sort(w.log); len(slices.Compact(slices.Clone(w.log))) != len(w.log) {
			t.Fatalf("an attempt was started twice: %v", w.log)
		}
	})
}

func drawPlan(t *rapid.T, w *world) train.Plan {
	p := train.Plan{Generation: w.Plan.Generation + uint64(rapid.IntRange(0, 2).Draw(t, "newer"))}
	if rapid.IntRange(0, 9).Draw(t, "stale") == 0 && p.Generation > 3 {
		p.Generation -= 3
	}
	device := rapid.SampledFrom([]train.DeviceID{"gpu:0", "gpu:1", "gpu:2"})
	for _, id := range w.ids() {
		if rapid.Bool().Draw(t, "gets") {
			a := train.Allocation{Job: id, Node: "n1", Devices: rapid.SliceOfN(device, 1, 2).Draw(t, "devices")}
			if w.Realm.Backend == train.BackendKubernetes && rapid.Bool().Draw(t, "gang") {
				other := train.Part{Node: "n2", Devices: rapid.SliceOfN(device, 1, 2).Draw(t, "devices of n2")}
				a.Parts, a.Node, a.Devices = []train.Part{{Node: a.Node, Devices: a.Devices}, other}, "", nil
			}
			if len(a.Parts) == 0 && rapid.Bool().Draw(t, "shares") {
				a.Memory = unit.Bytes(rapid.IntRange(1, 17).Draw(t, "memory")) * unit.GiB
			}
			p.Allocations = append(p.Allocations, a)
		}
	}
	return p
}

// The same state gives the same actions.
func TestActionsDependOnNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for i := range 5 {
			id := train.JobID(fmt.Sprintf("j%d", i))
			w.Jobs[id] = train.Job{ID: id, State: train.StateQueued, CancelRequested: rapid.Bool().Draw(t, "cancel")}
		}
		w.accept(drawPlan(t, w))
		first := fmt.Sprint(w.actions())
		for range 5 {
			if again := fmt.Sprint(w.actions()); again != first {
				t.Fatalf("%s\nthen\n%s", first, again)
			}
		}
	})
}
