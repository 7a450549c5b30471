package tune

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/file"
)

// The page of an online comparison has a picture of what response times are made of and one of each arrival, with
// what their axes show and in which unit.
func TestComparedPage(t *testing.T) {
	began := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	var all []modeRun
	for n, arrival := range []time.Duration{time.Minute, 0} { // as they end
		for _, mode := range []string{"v1", "pipetune"} {
			response := map[string]float64{"v1": 100, "pipetune": 60}[mode] + float64(n)
			all = append(all, modeRun{
				Mode: mode, ArrivedAt: began.Add(arrival), ResponseSeconds: response, QueueSeconds: 10, TuningSeconds: response - 30, TrainingSeconds: 20, EnergyJoules: 5, Modelled: true, Trials: 3,
			})
		}
	}
	f := tuneCompare{modes: []string{"v1", "pipetune"}, jobs: 2, seed: 7}
	rows := summarise(all, f.modes, true)
	if r := rows[1]; r.ResponseSeconds != 60.5 || r.QueueSeconds+r.TuningSeconds+r.TrainingSeconds != r.ResponseSeconds || math.Abs(r.SavedRatio-(1-60.5/100.5)) > 1e-9 {
		t.Errorf("%+v", r)
	}
	for jobs, pictures := range map[int]int{2: 2, 0: 1} {
		f.jobs = jobs
		var page bytes.Buffer
		if err := writeComparedHTML(&page, all, rows, f); err != nil {
			t.Fatal(err)
		}
		text := page.String()
		if n := strings.Count(text, "<svg"); n != pictures || strings.Contains(text, "http://") && !strings.Contains(text, "http://www.w3.org") {
			t.Errorf("%d jobs: %d pictures, want %d", jobs, n, pictures)
		}
		words := []string{"<title>Modes of tuning</title>", "queued", "tuning", "training", ">response time, s<", ">mode<", ">v1<", ">pipetune<", "39.8 %", "(modelled)"}
		if jobs > 0 {
			words = append(words, ">arrival, s after the first<", "seed 7", "Means of all experiments.")
		} else {
			words = append(words, "The run with the median response.")
		}
		for _, want := range words {
			if !strings.Contains(text, want) {
				t.Errorf("%d jobs: the page does not say %q", jobs, want)
			}
		}
	}
	if svg := drawArrivals(all, f.modes); strings.Count(svg, "<circle") != len(all) || !strings.Contains(svg, ">60<") || !strings.Contains(svg, ">arrival, s after the first<") {
		t.Errorf("arrivals: %s", svg)
	}
}

// The parts of a median response are those of the same run, and add up to it; medians of each part would not.
func TestPartsOfTheMedianAddUp(t *testing.T) {
	var all []modeRun
	for _, parts := range [][3]float64{{0, 10, 90}, {50, 30, 5}, {2, 3, 4}, {1, 80, 39}} {
		all = append(all, modeRun{Mode: "v1", QueueSeconds: parts[0], TuningSeconds: parts[1], TrainingSeconds: parts[2], ResponseSeconds: parts[0] + parts[1] + parts[2], EnergyJoules: parts[0]})
	}
	if r := summarise(all[:3], []string{"v1"}, false)[0]; r.ResponseSeconds != 85 || r.QueueSeconds != 50 || r.TuningSeconds != 30 || r.TrainingSeconds != 5 || r.EnergyJoules != 2 {
		t.Errorf("of three: %+v", r)
	}
	if r := summarise(all, []string{"v1"}, false)[0]; r.ResponseSeconds != 92.5 || r.QueueSeconds != 25 || r.TuningSeconds != 20 || r.TrainingSeconds != 47.5 || r.EnergyJoules != 1.5 {
		t.Errorf("of four: %+v", r)
	}
}

// An experiment of which no trial has a result has no objective: 0 would be the least of all losses.
func TestAModeWithoutAResultHasNoObjective(t *testing.T) {
	none := newModeRun("v1", conduct.Record{Trials: []contract.Trial{{State: contract.TrialFailed, Settings: []contract.SettingValues{{}}}}})
	some := none
	some.Mode, some.Objective = "v2", new(0.25)
	both := none
	both.Mode = some.Mode
	for _, online := range []bool{false, true} {
		rows := summarise([]modeRun{none, some, both}, []string{"v1", "v2"}, online)
		if rows[0].Objective != nil || rows[1].Objective == nil || *rows[1].Objective != 0.25 {
			t.Errorf("%+v", rows)
		}
		var page bytes.Buffer
		if err := writeComparedHTML(&page, nil, rows, tuneCompare{}); err != nil || !strings.Contains(page.String(), "<td>-</td>") || !strings.Contains(page.String(), "<td>0.25</td>") {
			t.Errorf("%v: %s", err, page.String())
		}
	}
	if rows := comparedRows([]modeRun{none, some}); rows[1][9] != "" || rows[2][9] != "0.25" {
		t.Errorf("%q", rows)
	}
}

// The ground truth does not change meanwhile, so that a comparison may be cut off at any time: it learns elsewhere.
func TestComparisonsLeaveProfilesAlone(t *testing.T) {
	s := clitest.New(t, Command)
	known := contract.GroundTruth{Seed: 7}
	clitest.Put(t, s.Bus, contract.Profiles, contract.ProfilesKey, known)
	stores, err := console.OpenBucket(t.Context(), s.Bus, contract.Profiles)
	if err != nil {
		t.Fatal(err)
	}
	records, err := console.OpenBucket(t.Context(), s.Bus, contract.Experiments)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var playing conc.WaitGroup
	defer playing.Wait()
	shared := map[string]int{}
	playing.Go(func() { // the service: it learns, and all is over at once
		submitted := event.Subject{Entity: "tune", ID: "*", Fact: event.FactSubmitted, Version: 1}.String()
		_ = s.Bus.Follow(ctx, event.StreamTune, []string{submitted}, 1, func(m bus.Message) {
			body, err := event.Decode[event.ExperimentSubmitted](m.Data)
			var e file.Experiment
			err = errors.Join(err, json.Unmarshal(body.Experiment, &e))
			if there, getErr := stores.Get(ctx, contract.ProfilesKey); err != nil || getErr != nil || there.Value.Seed != 7 {
				t.Errorf("while %s runs, what was known is %+v (%v, %v)", m.Parsed.ID, there, err, getErr)
			}
			shared[e.Profiles]++
			if _, err := stores.Swap(ctx, e.Profiles, contract.GroundTruth{Seed: 8}, 0); err != nil && !errors.Is(err, bus.ErrConflict) {
				t.Error(err)
			}
			if _, err := records.Swap(ctx, m.Parsed.ID, contract.ExperimentRecord{ID: m.Parsed.ID, Experiment: contract.Experiment(e), State: conduct.Finished}, 0); err != nil {
				t.Error(err)
			}
		})
	})
	example := []string{filepath.Join("..", "..", "..", "..", "examples", "experiments", "digits.yaml")}
	for _, f := range []tuneCompare{
		{modes: []string{"v1", "pipetune"}, runs: 2, prefix: "one"},
		{modes: []string{"v1", "pipetune"}, runs: 1, jobs: 3, meanGap: time.Nanosecond, prefix: "online"},
	} {
		if err := compareModes(ctx, s.Console, s.Yard(time.Now()), example, f); err != nil {
			t.Error(err)
		}
	}
	cancel()
	playing.Wait()
	want := map[string]int{"one-v1-0-0": 1, "one-pipetune-0-0": 1, "one-v1-0-1": 1, "one-pipetune-0-1": 1, "online-v1": 3, "online-pipetune": 3}
	if diff := cmp.Diff(want, shared); diff != "" {
		t.Error(diff)
	}
	if left, err := stores.Get(t.Context(), contract.ProfilesKey); err != nil || left.Value.Seed != 7 {
		t.Errorf("known afterwards: %+v, error %v", left, err)
	}
}
