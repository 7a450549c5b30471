package recurring

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/lab/rows"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

// measured reads the measured trainings, or skips where they are not.
func measured(t *testing.T) (trainings []Training, data string) {
	t.Helper()
	root := os.Getenv("SWITCHYARD_DATA")
	if root == "" {
		t.Skip("SWITCHYARD_DATA names no folder with the published traces")
	}
	data = filepath.Join(root, "zeus")
	for _, gpu := range []string{"v100", "a40"} {
		all, err := Load(os.DirFS(filepath.Join(data, "trace")), gpu)
		if err != nil {
			t.Fatal(err)
		}
		trainings = append(trainings, all...)
	}
	return trainings, data
}

func runAll(t *testing.T, trainings []Training, p recur.Policy, seeds int) []Row {
	t.Helper()
	var rows []Row
	for i := range trainings {
		row, err := Run(&trainings[i], p, 0.5, seeds)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// within says whether x is near the reference, as a share of that.
func within(x, reference, share float64) bool { return math.Abs(x/reference-1) <= share }

// The trace's authors' own simulator is the reference: what is expected of default and oracle is the same, and so are
// the published algorithm's results but for luck (20 seeds on either side; on movielens single seeds cost ten times
// the others).
func TestZeusReproducesItsFigures(t *testing.T) {
	trainings, data := measured(t)
	reference, err := rows.Read(os.DirFS(filepath.Join(data, "derived")), "baselines_eta0.5.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows := runAll(t, trainings, Zeus{}, 20)
	for i, tr := range trainings {
		for _, line := range reference {
			if line.Text("gpu") != tr.GPU || line.Text("ds") != tr.Dataset {
				continue
			}
			number := func(column string) float64 {
				x, err := line.Number(column)
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
			user := tr.expected(*tr.batch(tr.Default), tr.batch(tr.Default).at(tr.MaxPowerWatts))
			for column, x := range map[string]float64{"R": float64(tr.Recurrences()), "d_eta": user.joules, "d_tta": user.seconds, "o_cost": tr.oracle(0.5)} {
				if !within(x, number(column), 1e-4) {
					t.Errorf("%s on %s: %s is %g, want %g", tr.Dataset, tr.GPU, column, x, number(column))
				}
			}
			for column, x := range map[string]float64{"zE": rows[i].EnergyRatio, "zT": rows[i].TimeRatio, "zC": rows[i].CostRatio, "zE20": rows[i].First20EnergyRatio} {
				if !within(x, number(column), 0.05) {
					t.Errorf("%s on %s: %s is %.3f, want %.3f", tr.Dataset, tr.GPU, column, x, number(column))
				}
			}
		}
	}
	a := Aggregate(rows)
	t.Logf("mean regret %.2f, cost ratio %.4f", a.Regret, a.CostRatio)
	if !within(a.Regret, 6.99, 0.05) || !within(a.CostRatio, 0.677, 0.05) {
		t.Errorf("mean regret %.2f and cost ratio %.4f, want 6.99 and 0.677 within 5 %%", a.Regret, a.CostRatio)
	}
}

func TestSwitchyardIsAheadOfZeus(t *testing.T) {
	trainings, _ := measured(t)
	zeus, ours := runAll(t, trainings, Zeus{}, 20), runAll(t, trainings, recur.Switchyard{Prior: recur.StandardPrior()}, 20)
	ahead := 0
	for i, r := range ours {
		if r.Regret < zeus[i].Regret {
			ahead++
		}
		if r.CostRatio > 1.027 {
			t.Errorf("%s on %s costs %.3f of the default", r.Dataset, r.GPU, r.CostRatio)
		}
	}
	a := Aggregate(ours)
	t.Logf("ahead on %d of %d, mean regret %.2f, cost ratio %.4f", ahead, len(ours), a.Regret, a.CostRatio)
	if ahead < 12 || a.Regret > 2.7 || a.CostRatio > 0.658 {
		t.Errorf("ahead on %d of %d, mean regret %.2f, cost ratio %.4f; want 12, 2.7, 0.658", ahead, len(ours), a.Regret, a.CostRatio)
	}
}

// The constants of the prior are round numbers: on each GPU alone, each of them may as well be two thirds or one and
// a half of what it is.
func TestTheChoiceOfThePriorIsFlat(t *testing.T) {
	trainings, _ := measured(t)
	byGPU := map[string][]Training{}
	for _, tr := range trainings {
		byGPU[tr.GPU] = append(byGPU[tr.GPU], tr)
	}
	constants := map[string]func(*recur.Prior) *float64{
		"slope": func(p *recur.Prior) *float64 { return &p.Slope }, "bend": func(p *recur.Prior) *float64 { return &p.Bend },
		"rough": func(p *recur.Prior) *float64 { return &p.Rough }, "noise": func(p *recur.Prior) *float64 { return &p.Noise },
		"noise runs": func(p *recur.Prior) *float64 { return &p.NoiseRuns }, "horizon": func(p *recur.Prior) *float64 { return &p.MinHorizon },
		"trend": func(p *recur.Prior) *float64 { return &p.Trend }, "usual epochs": func(p *recur.Prior) *float64 { return &p.UsualEpochs },
		"stop": func(p *recur.Prior) *float64 { return &p.StopRatio },
	}
	for name, constant := range constants {
		for _, factor := range []float64{2. / 3, 1.5} {
			p := recur.StandardPrior()
			*constant(&p) *= factor
			for gpu, trainings := range byGPU {
				a := Aggregate(runAll(t, trainings, recur.Switchyard{Prior: p}, 5))
				t.Logf("%s times %.2f on %s: mean regret %.2f, cost ratio %.4f", name, factor, gpu, a.Regret, a.CostRatio)
				if a.Regret > 3.3 {
					t.Errorf("%s times %.2f on %s: mean regret %.2f", name, factor, gpu, a.Regret)
				}
			}
		}
	}
}

func TestPublishedPowerLimits(t *testing.T) {
	_, data := measured(t)
	profiles, err := LoadProfiles(os.DirFS(filepath.Join(data, "plo_windows")))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]float64{"A40": {275, 300, 175, 150, 200, 150}, "V100": {200, 100, 150, 175, 175, 100}}
	for _, p := range profiles {
		gpu, _, _ := strings.Cut(p.File, "+")
		if len(want[gpu]) == 0 {
			t.Fatalf("%s: one more than expected", p.File)
		}
		if c := p.Choose(0.5); c.PowerLimit != want[gpu][0] {
			t.Errorf("%s: %g W, want %g W", p.File, c.PowerLimit, want[gpu][0])
		}
		want[gpu] = want[gpu][1:]
	}
	if len(want["A40"])+len(want["V100"]) > 0 {
		t.Errorf("no profile for %v", want)
	}
}
