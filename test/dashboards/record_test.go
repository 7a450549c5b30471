package dashboards

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/series"
)

// recording is the file with the run that the dashboards show.
const recording = "testdata/run.jsonl.gz"

// line is one line of a recorded run: a node, a final job record, or a fact.
type line struct {
	Node *train.Node `json:"node,omitempty"`
	Job  *train.Job  `json:"job,omitempty"`
	Fact *fact       `json:"fact,omitempty"`
}

type fact struct {
	Subject string          `json:"subject"`
	Key     string          `json:"key"`
	Source  string          `json:"source"`
	Time    time.Time       `json:"time"`
	Body    json.RawMessage `json:"body"`
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestRecord writes the recording again from the bus that RECORD names: only the input of the time series.
func TestRecord(t *testing.T) {
	url := os.Getenv("RECORD")
	if url == "" {
		t.Skip("RECORD names no bus to record from")
	}
	ctx := within(t)
	b, err := bus.Connect(ctx, bus.Config{URL: url, Keys: os.Getenv("SWITCHYARD_KEYS"), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var lines []line
	nodes, err := list(ctx, b, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		lines = append(lines, line{Node: &train.Node{ID: n.ID, Devices: n.Devices}})
	}
	jobs, err := list(ctx, b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		spec := train.Spec{Name: j.Spec.Name, User: j.Spec.User, Tenant: j.Spec.Tenant, BatchSize: j.Spec.BatchSize, TrainingSetSize: j.Spec.TrainingSetSize}
		lines = append(lines,
			line{Job: &train.Job{ID: j.ID, Spec: spec, State: j.State, StartedAt: j.StartedAt, FirstPredictedFinish: j.FirstPredictedFinish, FinishedAt: j.FinishedAt, RunSeconds: j.RunSeconds, EpochsDone: j.EpochsDone}})
	}
	keep := func(m bus.Message) {
		body := m.Data
		if m.Parsed.Fact == event.FactAdmitted || m.Parsed.Fact == event.FactFailed {
			body = []byte("{}") // a spec has folders, an exit has a log
		}
		lines = append(lines, line{Fact: &fact{Subject: m.Subject, Key: m.Key, Source: m.Source, Time: m.Time, Body: body}})
	}
	var filters []string
	for _, f := range series.JobFacts() {
		filters = append(filters, event.JobSubject("*", f).String())
	}
	if err := b.Stored(ctx, event.StreamJobs, filters, time.Time{}, keep); err != nil {
		t.Fatal(err)
	}
	if err := b.Stored(ctx, event.StreamSamples, []string{"yard.energy.*.measured.v1"}, time.Time{}, keep); err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at().Compare(b.at()) })
	save(t, lines)
}

// at returns the time of a line: nodes and jobs are there from the beginning.
func (l line) at() time.Time {
	if l.Fact == nil {
		return time.Time{}
	}
	return l.Fact.Time
}

func list[T any](ctx context.Context, b *bus.Bus, bucket contract.Bucket[T]) ([]T, error) {
	kv, err := bus.OpenKV(ctx, b, bucket)
	if err != nil {
		return nil, err
	}
	entries, err := kv.List(ctx)
	var values []T
	for _, e := range entries {
		values = append(values, e.Value)
	}
	return values, err
}

func save(t *testing.T, lines []line) {
	t.Helper()
	f, err := os.Create(recording)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	e := json.NewEncoder(z)
	for _, l := range lines {
		if err := e.Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmp.Or(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T) []line {
	t.Helper()
	f, err := os.Open(recording)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var lines []line
	for s := bufio.NewScanner(z); s.Scan(); {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}
