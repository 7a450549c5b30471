// Package dashboards shows a recorded run to every panel of the Grafana boards, on a real InfluxDB.
package dashboards

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy"
	"github.com/switchyard-dl/switchyard/services/energy/influx"
	"github.com/switchyard-dl/switchyard/test/influxd"
)

var update = flag.Bool("update", false, "write testdata/panels.txt again")

// board is the used part of a dashboard's file.
type board struct {
	Title  string `json:"title"`
	Panels []struct {
		Title   string   `json:"title"`
		Type    string   `json:"type"`
		Targets []target `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Annotations struct {
		List []struct {
			Name   string `json:"name"`
			Target target `json:"target"`
		} `json:"list"`
	} `json:"annotations"`
}

type target struct {
	Query string `json:"query"`
}

// TestEveryPanelShowsTheRecordedRun runs all queries as Grafana would and compares the results with
// testdata/panels.txt.
func TestEveryPanelShowsTheRecordedRun(t *testing.T) {
	server := influxd.Start(t)
	client := influx.Open(influx.Config{URL: server.URL, Org: "switchyard"})
	defer client.Close()
	from, to := replay(t, client, server.URL)
	fill := strings.NewReplacer(
		"${database}", "switchyard", "${stage}", "raw", "${node:regex}", ".*", "${user:regex}", ".*", "${tenant:regex}", ".*", "${link:regex}", ".*", "${job}", "resnet-1", "${budget}", "10000",
		"v.timeRangeStart", from.Format(time.RFC3339Nano), "v.timeRangeStop", to.Format(time.RFC3339Nano), "v.windowPeriod", "10s", "now()", to.Format(time.RFC3339Nano),
	)
	page := strings.Builder{}
	page.WriteString(preface)
	show := func(title string, queries ...string) {
		fmt.Fprintf(&page, "\n**%s**\n\n```\n", title)
		for _, q := range queries {
			rows, err := client.Query(within(t), fill.Replace(q))
			if err != nil || len(rows) == 0 {
				t.Errorf("%s: %d rows, error %v\n%s", title, len(rows), err, fill.Replace(q))
			}
			page.WriteString(render(rows))
		}
		page.WriteString("```\n")
	}
	for _, b := range boards(t) {
		fmt.Fprintf(&page, "\n## %s\n", b.Title)
		for _, v := range b.Templating.List {
			if v.Type == "query" {
				show("Choices of "+v.Name, v.Query)
			}
		}
		for _, a := range b.Annotations.List {
			show("Annotations: "+a.Name, a.Target.Query)
		}
		for _, p := range b.Panels {
			queries := make([]string, len(p.Targets))
			for i, target := range p.Targets {
				queries[i] = target.Query
			}
			show(p.Title, queries...)
		}
	}
	page.WriteString("\n## Alerts\n\nAn alert is raised for each link or node whose newest value is above 0.\n")
	for _, r := range rules(t) {
		show(r.Title, r.Data[0].Model.Query)
	}
	compare(t, page.String())
}

const preface = `<!-- Written by the test of test/dashboards with -update. Do not edit. -->
# What the dashboards show

The rows that each panel and alert of deploy/grafana gets from a real InfluxDB 1.8 for a recorded run. Long answers show
only their beginning.

The run has three jobs of two users on a node with two simulated GPUs. Processors' power is modelled. The recording adds
a meter for each simulated GPU (60 W, and 240 W more while a job is there, as the plans predict), a PDU at 1.08 times the
sum, a missed second before every twentieth interval, and probes between two nodes: packets into one are lost for a
minute, packets into the other are delayed to the end.
`

// compare compares the rendered results with the recorded ones.
func compare(t *testing.T, page string) {
	t.Helper()
	const path = "testdata/panels.txt"
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	known, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(known), "\n"), strings.Split(page, "\n")); d != "" {
		t.Errorf("testdata/panels.txt (-known +now)\n%s", d)
	}
}

// render prints rows with their informative columns, in order.
func render(rows []influx.Row) string {
	var lines []string
	for _, r := range rows {
		var words []string
		for _, column := range slices.Sorted(maps.Keys(r)) {
			if slices.Contains([]string{"result", "table", "_start", "_stop"}, column) {
				continue
			}
			switch v := r[column].(type) {
			case time.Time:
				words = append(words, v.UTC().Format("15:04:05"))
			case float64:
				words = append(words, fmt.Sprintf("%s=%.5g", column, v))
			default:
				words = append(words, fmt.Sprintf("%s=%v", column, v))
			}
		}
		lines = append(lines, strings.Join(words, " "))
	}
	slices.Sort(lines)
	const most = 6
	text := strings.Join(lines[:min(len(lines), most)], "\n") + "\n"
	if len(lines) > most {
		text += fmt.Sprintf("... %d rows in all\n", len(lines))
	}
	return text
}

func boards(t *testing.T) []board {
	t.Helper()
	paths, err := filepath.Glob("../../deploy/grafana/dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []board
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var b board
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if left := regexp.MustCompile(`\$\{DS_[A-Z]+\}`).FindString(string(text)); left != "" {
			t.Errorf("%s asks for %s", path, left)
		}
		if b.Templating.List[0].Query == "influxdb" { // those on Prometheus are for test/system
			all = append(all, b)
		}
	}
	if len(all) != 5 {
		t.Fatalf("%d dashboards on InfluxDB in %v, want 5", len(all), paths)
	}
	return all
}

// replay sends the recorded run through the bus and the energy service into the database, and returns its period.
func replay(t *testing.T, client *influx.Client, url string) (from, to time.Time) {
	t.Helper()
	if _, err := client.Prepare(within(t), influx.Setup{Database: "switchyard"}); err != nil {
		t.Fatal(err)
	}
	keepForEver(t, url)
	b := bustest.Connect(t, bustest.Start(t), "test")
	plan := event.PlanDecided{Plan: train.Plan{Generation: 1, Policy: "switchyard"}}
	if err := b.Publish(within(t), event.Fact{Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: "plan/1", Body: plan}); err != nil {
		t.Fatal(err)
	}
	serve(t, b.URL(), url)
	lines, records := load(t), map[string]train.Job{}
	for _, l := range lines {
		switch {
		case l.Node != nil:
			put(t, b, contract.Nodes, string(l.Node.ID), *l.Node)
		case l.Job != nil:
			running := *l.Job
			running.State, running.FinishedAt = train.StateRunning, time.Time{}
			put(t, b, contract.Jobs, string(running.ID), running)
			records[string(running.ID)] = *l.Job
		case strings.HasSuffix(l.Fact.Subject, ".measured.v1"):
			at := publish(t, b, withMeters(t, *l.Fact, lines))
			if from.IsZero() {
				from = at.Add(-time.Second).Truncate(10 * time.Second)
			}
			to = at.Add(10 * time.Second).Truncate(10 * time.Second)
		case strings.HasSuffix(l.Fact.Subject, ".planned.v1"):
			publish(t, b, withPower(t, *l.Fact))
		default:
			if strings.Contains(l.Fact.Subject, event.FactSucceeded) {
				job := strings.Split(l.Fact.Subject, ".")[2]
				put(t, b, contract.Jobs, job, records[job])
			}
			publish(t, b, *l.Fact)
		}
	}
	probe(t, b, from, to)
	caughtUp(t, b, event.StreamSamples, "energy-series-network")
	caughtUp(t, b, event.StreamSamples, "energy-series")
	caughtUp(t, b, event.StreamJobs, "energy-series-jobs")
	return from, to
}

// caughtUp waits until a durable consumer has acknowledged everything in its stream.
func caughtUp(t *testing.T, b *bus.Bus, stream, consumer string) {
	t.Helper()
	js := bustest.JetStream(t, b.URL())
	ctx := within(t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := js.Consumer(ctx, stream, consumer)
		if err == nil && c.CachedInfo().NumPending == 0 && c.CachedInfo().NumAckPending == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("consumer %s does not get to the end: %v", consumer, err)
		case <-tick.C:
		}
	}
}

// keepForEver lets the database accept points of a run long past.
func keepForEver(t *testing.T, server string) {
	t.Helper()
	q := url.Values{"q": {`ALTER RETENTION POLICY "raw" ON "switchyard" DURATION INF`}}
	request, err := http.NewRequestWithContext(within(t), http.MethodPost, server+"/query?"+q.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || strings.Contains(string(text), "error") {
		t.Fatalf("%s %v", text, err)
	}
}

func put[T any](t *testing.T, b *bus.Bus, bucket contract.Bucket[T], key string, value T) {
	t.Helper()
	kv, err := bus.OpenKV(within(t), b, bucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Modify(within(t), key, func(known *T) (bool, error) { *known = value; return true, nil }); err != nil {
		t.Fatal(err)
	}
}

// withPower adds to a plan its prediction for GPUs that draw 300 W at work.
func withPower(t *testing.T, f fact) fact {
	t.Helper()
	planned, err := event.Decode[event.Planned](f.Body)
	if err != nil {
		t.Fatal(err)
	}
	planned.PowerWatts = 300 * float64(len(planned.Devices))
	if f.Body, err = json.Marshal(planned); err != nil {
		t.Fatal(err)
	}
	return f
}

// withMeters adds to a node's measurement a GPU for each job that was there, a meter at the plug, gaps, and the ended
// epochs.
func withMeters(t *testing.T, f fact, lines []line) fact {
	t.Helper()
	m, err := event.Decode[event.Measured](f.Body)
	if err != nil {
		t.Fatal(err)
	}
	for i, device := range []train.DeviceID{"gpu:0", "gpu:1"} {
		gpu := event.Meter{Component: "gpu", Device: device, Method: "nvml_counter", Energy: 60 * unit.Joule, Idle: 60 * unit.Joule, Capacity: 1}
		gpu.Board = &event.Board{LimitWatts: 350, SMRatio: new(0.0), MemoryUsed: unit.GiB, TemperatureC: 38}
		if i < len(m.Users) {
			gpu.Energy += 240 * unit.Joule
			gpu.Board = &event.Board{LimitWatts: 350, SMRatio: new(0.8), MemoryUsed: 9 * unit.GiB, TemperatureC: 71, Throttle: []string{"power"}}
			m.Users = append(m.Users,
				event.Use{Job: m.Users[i].Job, Attempt: m.Users[i].Attempt, Component: "gpu", Device: device, Work: 0.8})
		}
		m.Meters = append(m.Meters, gpu)
	}
	m.Epochs = nil
	for _, l := range lines {
		if l.Fact == nil || !strings.Contains(l.Fact.Subject, event.FactEpochEnded) || l.Fact.Time.Before(m.From) || !l.Fact.Time.Before(m.To) {
			continue
		}
		ended, err := event.Decode[event.EpochEnded](l.Fact.Body)
		if err != nil {
			t.Fatal(err)
		}
		job := strings.Split(l.Fact.Subject, ".")[2]
		m.Epochs = append(m.Epochs,
			event.EpochMark{Job: train.JobID(job), Attempt: ended.Attempt, EpochsDone: ended.EpochsDone, At: l.Fact.Time})
	}
	if m.Sequence%20 == 0 {
		m.GapSeconds = 1
	}
	plug := event.Meter{Component: "node", Method: "pdu"}
	for _, meter := range m.Meters {
		plug.Energy += meter.Energy + meter.Energy*8/100
	}
	m.Meters = append(m.Meters, plug)
	if f.Body, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	return f
}

func publish(t *testing.T, b *bus.Bus, f fact) time.Time {
	t.Helper()
	subject, err := event.ParseSubject(f.Subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(within(t), event.Fact{Subject: subject, Key: f.Key, Source: f.Source, Time: f.Time, Body: f.Body}); err != nil {
		t.Fatal(err)
	}
	return f.Time
}

// serve runs the energy service until the test ends.
func serve(t *testing.T, nats, server string) {
	t.Helper()
	all, err := settings.Of("--influx-url", server, "--tariff", "../../deploy/grafana/site.yaml", "--cluster-name", "lab")
	if err != nil {
		t.Fatal(err)
	}
	s := energy.New(all.Energy)
	ctx, cancel := context.WithCancel(context.Background())
	common := run.Common{NATS: nats, HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: t.TempDir(), Node: "n1"}
	var running conc.WaitGroup
	running.Go(func() {
		if err := run.Together(ctx, common, os.Stderr, func(net.Addr) {}, s); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}
