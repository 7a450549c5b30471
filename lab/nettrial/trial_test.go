package nettrial

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/services/planner/probe"
	"github.com/switchyard-dl/switchyard/services/profiler/diagnose"
)

func fatTree(tb testing.TB, k int, goal probe.Goal) Network {
	tb.Helper()
	_, p, err := fabric.FatTree(k, false)
	if err != nil {
		tb.Fatal(err)
	}
	return Network{Matrix: fabric.NewMatrix(p.Links*p.Parts, probe.Plan(p, goal)), Probes: 1000, Flows: 8, Background: 1e-5}
}

// The aims are those for a fat-tree of 48 ports, published: 96.0 % to 89.9 % with beta 1, 98.9 % with beta 2.
func TestFailedLinksAreNamed(t *testing.T) {
	for _, c := range []struct {
		goal                  probe.Goal
		failures, runs        int
		accuracy, wrongAtMost float64
	}{
		{probe.Goal{Alpha: 2, Beta: 1}, 1, 300, 0.97, 0.015},
		{probe.Goal{Alpha: 2, Beta: 1}, 50, 20, 0.93, 0.015},
		{probe.Goal{Alpha: 1, Beta: 2}, 1, 300, 0.993, 0.015},
		{probe.Goal{Alpha: 3, Beta: 2}, 50, 20, 0.993, 0.015},
	} {
		n := fatTree(t, 48, c.goal)
		rnd := rand.New(rand.NewPCG(3, 4))
		var tally Tally
		for range c.runs {
			failed, counts := n.Window(c.failures, rnd)
			tally.Judge(failed, diagnose.Localise(n.Matrix, counts, diagnose.Options{}))
		}
		if tally.Failed != c.failures*c.runs || tally.Accuracy() < c.accuracy || tally.FalsePositives() > c.wrongAtMost {
			t.Errorf("%+v, %d failures: accuracy %.4f, false positives %.4f: %+v", c.goal, c.failures, tally.Accuracy(), tally.FalsePositives(), tally)
		}
	}
}

func TestWindowsAreAsTheyAreSaidToBe(t *testing.T) {
	n := fatTree(t, 8, probe.Goal{Alpha: 2, Beta: 1})
	n.Background = 1e-3
	rnd := rand.New(rand.NewPCG(5, 6))
	lost, probes := 0, 0
	for range 50 {
		failed, counts := n.Window(0, rnd)
		if len(failed) != 0 {
			t.Fatal(failed)
		}
		for _, c := range counts {
			lost, probes = lost+c.Lost, probes+c.Sent
		}
	}
	if got, want := float64(lost)/float64(probes), 4e-3; math.Abs(got-want) > 0.02*want {
		t.Errorf("background over four links %.5f, want %.5f", got, want)
	}
	n.Background = 0
	full, half, few := 0, 0, 0
	for range 900 {
		failed, counts := n.Window(1, rnd)
		for l := range failed {
			for r, c := range counts {
				over := false
				for _, m := range n.Matrix.Rows[r] {
					over = over || m == l
				}
				if !over && c.Lost != 0 {
					t.Fatalf("row %d lost %d and does not cross link %d", r, c.Lost, l)
				}
			}
			switch c := counts[n.Matrix.Over(l)[0]]; {
			case c.Lost == c.Sent:
				full++
			case c.Lost%125 == 0:
				half++
			default:
				few++
			}
		}
	}
	if min(full, half, few) < 240 {
		t.Errorf("%d in full, %d by flows, %d by packets, want about 300 each", full, half, few)
	}
}

func BenchmarkLocalise(b *testing.B) {
	n := fatTree(b, 48, probe.Goal{Alpha: 2, Beta: 1})
	_, counts := n.Window(50, rand.New(rand.NewPCG(7, 8)))
	for b.Loop() {
		diagnose.Localise(n.Matrix, counts, diagnose.Options{})
	}
}
