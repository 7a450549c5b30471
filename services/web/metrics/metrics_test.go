package metrics

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/index"
)

var update = flag.Bool("update", false, "write testdata/metrics.txt again")

func noon() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) }

func put(t *testing.T, s index.Source, key string, value any) {
	t.Helper()
	data, err := json.Marshal(value)
	if err == nil {
		_, err = s.Put(key, 1, data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lab is an index with a job that runs, one that waits and one that has ended, on a node with two GPUs.
func lab(t *testing.T) *index.Index {
	t.Helper()
	x, ago := index.New(), func(d time.Duration) time.Time { return noon().Add(-d) }
	spec := func(name, user, project string) train.Spec {
		return train.Spec{Name: name, User: user, Tenant: "vision", Project: project, BatchSize: 32, TrainingSetSize: 3200, MaxEpochs: 10}
	}
	put(t, x.Jobs, "runs", train.Job{
		ID: "runs", Spec: spec("resnet", "ann", "thesis"), State: train.StateRunning, Reason: "Started", SubmittedAt: ago(time.Hour), StartedAt: ago(50 * time.Minute),
		Attempt: 2, Restarts: 1, EpochsDone: 4, RunSeconds: 600, AttemptStartedAt: ago(10 * time.Minute), Devices: []train.DeviceID{"gpu:0"},
	})
	put(t, x.Jobs, "waits", train.Job{ID: "waits", Spec: spec("bert \"large\"", "bob", ""), State: train.StateQueued, Reason: "WaitingForDevices", SubmittedAt: ago(5 * time.Minute)})
	put(t, x.Jobs, "held", train.Job{ID: "held", Spec: spec("held", "bob", ""), State: train.StateHeld, SubmittedAt: ago(9 * time.Minute)})
	put(t, x.Jobs, "after", train.Job{ID: "after", Spec: train.Spec{Name: "after", After: &train.AfterSpec{OK: []train.JobID{"runs"}}}, State: train.StateQueued, SubmittedAt: ago(time.Minute)})
	put(t, x.Jobs, "ended", train.Job{ID: "ended", Spec: spec("gan", "bob", ""), State: train.StateSucceeded, SubmittedAt: ago(2 * time.Hour), StartedAt: ago(2 * time.Hour), FinishedAt: ago(endedShown), RunSeconds: 60, EpochsDone: 10})
	put(t, x.Jobs, "old", train.Job{ID: "old", State: train.StateFailed, SubmittedAt: ago(3 * time.Hour), FinishedAt: ago(endedShown + 1)})
	put(t, x.Jobs, "array", train.Job{ID: "array", Spec: train.Spec{Array: "0-9"}, State: train.StateQueued, SubmittedAt: ago(time.Minute)})
	put(t, x.Attempts, "runs", train.Attempt{Job: "runs", Number: 2, Node: "n1", Devices: []train.DeviceID{"gpu:0"}, Phase: train.PhaseRunning})
	put(t, x.Reports, contract.ReportKey("runs", 2), train.AttemptReport{Job: "runs", Attempt: 2, EpochsDone: 4, Steps: train.Steps{Epoch: 4, Done: 50, Of: 100, Seconds: 0.25, At: noon()}})
	put(t, x.Courses, contract.EnergyProgressKey("runs"), train.EnergyProgress{Job: "runs", Epochs: []train.EpochEnergy{{EpochsDone: 3, Loss: new(0.5)}, {EpochsDone: 4}}})
	put(t, x.Accounts, contract.AccountKey("runs"), train.Account{Job: "runs", Energy: 1001 * unit.Joule, Components: map[string]unit.Energy{"gpu": 900 * unit.Joule, "cpu": 101 * unit.Joule}})
	put(t, x.Accounts, contract.AccountKey("ended"), train.Account{Job: "ended", Energy: unit.Joule, Components: map[string]unit.Energy{"cpu": unit.Joule}, Cost: new(0.25), Currency: "CHF", CO2eGrams: new(12.5), Final: true})
	gpu := func(id train.DeviceID) train.Device { return train.Device{ID: id, Kind: train.KindGPU, Model: "A100"} }
	put(t, x.Nodes, "n1", train.Node{ID: "n1", Devices: []train.Device{gpu("gpu:0"), gpu("gpu:1")}, SeenAt: noon()})
	put(t, x.Power, "n1", event.Measured{Node: "n1", From: ago(time.Second), To: noon(), Meters: []event.Meter{
		{Component: "cpu", Method: "rapl", Energy: 50 * unit.Joule},
		{Component: "gpu", Device: "gpu:0", Method: "nvml_counter", Energy: 250 * unit.Joule, Board: &event.Board{LimitWatts: 400, SMRatio: new(0.9), MemoryUsed: unit.GiB, TemperatureC: 70}},
		{Component: "gpu", Device: "gpu:1", Method: "nvml_counter", Energy: 40 * unit.Joule},
	}})
	return x
}

func gather(t *testing.T, x *index.Index, most int) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry(x, most), promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

func registry(x *index.Index, most int) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(New(most, func(f func(*index.Index)) { f(x) }, noon))
	return r
}

// TestTheTable compares what a scrape says of a small lab with testdata/metrics.txt.
func TestTheTable(t *testing.T) {
	const path = "testdata/metrics.txt"
	got := gather(t, lab(t), 1000)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got)\n%s", path, diff)
	}
	problems, err := testutil.GatherAndLint(registry(lab(t), 1000))
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, error %v", problems, err)
	}
}

// TestTooManyJobs: those that run come first, and what is left out is counted.
func TestTooManyJobs(t *testing.T) {
	x := lab(t)
	for i := range 50 {
		id := fmt.Sprint("q", i)
		put(t, x.Jobs, id, train.Job{ID: train.JobID(id), State: train.StateQueued, Spec: train.Spec{User: id}, SubmittedAt: noon().Add(-time.Duration(i) * time.Second)})
	}
	got := gather(t, x, 3)
	for _, want := range []string{
		`switchyard_job_epochs{job_id="runs"`, `switchyard_job_epochs{job_id="ended"`, `switchyard_job_epochs{job_id="held"`,
		`switchyard_metrics_left_out{what="jobs"} 52`, `switchyard_metrics_left_out{what="owners"} 48`, `switchyard_jobs{state="queued"} 52`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "switchyard_job_epochs{"); n != 3 {
		t.Errorf("%d jobs are shown, want 3", n)
	}
	if none := gather(t, x, 0); strings.Contains(none, "job_id=") || !strings.Contains(none, `{what="jobs"} 55`) {
		t.Errorf("a bound of 0 shows jobs:\n%s", none)
	}
}
