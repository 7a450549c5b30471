package energy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/grid"
	"github.com/switchyard-dl/switchyard/services/energy/influx"
	"github.com/switchyard-dl/switchyard/services/energy/series"
	"github.com/switchyard-dl/switchyard/test/influxd"
)

// TestOnInfluxDB runs the tests that need a real database on one server, since starting it takes longer than most of
// them. Each has its own databases.
func TestOnInfluxDB(t *testing.T) {
	t.Parallel()
	server := influxd.Start(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *influxd.Server)
	}{
		{"intervals become points", intervalsBecomePoints},
		{"facts of jobs become points", factsOfJobsBecomePoints},
		{"probes and links become points", probesAndLinksBecomePoints},
		{"what left the stream is said", lossesFromTheStreamAreReported},
		{"the ground truth is mirrored", theGroundTruthIsMirrored},
		{"an unsteady database loses and doubles nothing", anUnsteadyDatabaseLosesAndDoublesNothing},
		{"a kill of service and database loses and doubles nothing", aKillOfServiceAndDatabaseLosesAndDoublesNothing},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, server) })
	}
}

// store holds the databases of one test: the service's configuration, and a client to read them.
type store struct {
	config settings.Energy
	client *influx.Client
}

// storeOn sets up databases on a server.
func storeOn(t *testing.T, server *influxd.Server) store {
	t.Helper()
	name := strings.ReplaceAll(t.Name(), "/", "-")
	c := settings.Energy{
		InfluxURL: server.URL, InfluxOrg: "switchyard", InfluxDatabase: name, InfluxPipeTune: name + "-energy", InfluxGroundTruth: name + "-truths", ClusterName: "lab",
		IdlePolicy: settings.IdleCluster,
	}
	client := influx.Open(influx.Config{URL: c.InfluxURL, Org: c.InfluxOrg})
	t.Cleanup(client.Close)
	if _, err := client.Prepare(within(t), influx.Setup{Database: c.InfluxDatabase, PipeTune: c.InfluxPipeTune, GroundTruth: c.InfluxGroundTruth}); err != nil {
		t.Fatal(err)
	}
	return store{c, client}
}

// raw returns the bucket of raw points.
func (s store) raw() string { return influx.Bucket(s.config.InfluxDatabase, series.Raw) }

// query reads the last two hours of a bucket.
func (s store) query(t *testing.T, bucket, pipe string) []influx.Row {
	t.Helper()
	all, err := s.client.Query(within(t), fmt.Sprintf("from(bucket: %q) |> range(start: -2h) |> %s", bucket, pipe))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// lately is the n-th second of node n1: 300 J on a GPU that job a holds, 20 J of the processors.
func lately(n uint64) event.Fact {
	meters := []event.Meter{
		{Component: "gpu", Device: "gpu:0", Method: "nvml_counter", Energy: 300 * unit.Joule, Idle: 60 * unit.Joule, Capacity: 1},
		{Component: "cpu", Method: "rapl", Energy: 20 * unit.Joule, Idle: 5 * unit.Joule, Busy: 1.5, Capacity: 2},
	}
	uses := []event.Use{{Job: "a", Component: "gpu", Device: "gpu:0", Work: 0.8}, {Job: "a", Component: "cpu", Work: 0.5}}
	m := interval("n1", "b", n, meters, uses...)
	shift := time.Since(hour).Truncate(time.Second) - 30*time.Minute
	m.From, m.To = m.From.Add(shift), m.To.Add(shift)
	return factOf(m, "")
}

func (k *books) node(n train.Node) {
	k.t.Helper()
	nodes, err := bus.OpenKV[train.Node](within(k.t), k.bus, contract.Nodes)
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := nodes.Modify(within(k.t), string(n.ID), func(known *train.Node) (bool, error) { *known = n; return true, nil }); err != nil {
		k.t.Fatal(err)
	}
}

func (k *books) furnish() {
	k.job(train.Job{ID: "a", State: train.StateRunning, Spec: train.Spec{User: "ann", Tenant: "vision", BatchSize: 64}})
	k.node(train.Node{ID: "n1", Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU, Model: "H100", UUID: "GPU-1", BusyWatts: 700}}})
}

// rows returns the points of a measurement (of jobs: those of GPUs), and fails on a duplicate.
func (s store) rows(t *testing.T, bucket, measurement, field string) map[time.Time]influx.Row {
	t.Helper()
	pipe := fmt.Sprintf(`filter(fn: (r) => r._measurement == %q and r._field == %q and (not exists r.component or r.component == "gpu"))`,
		measurement, field)
	found := map[time.Time]influx.Row{}
	for _, r := range s.query(t, bucket, pipe) {
		at := r["_time"].(time.Time)
		if _, twice := found[at]; twice {
			t.Fatalf("two points of %s at %s", measurement, at)
		}
		found[at] = r
	}
	return found
}

// eventually polls until there is the wanted number of points.
func (s store) eventually(t *testing.T, measurement, field string, want int) map[time.Time]influx.Row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		found := s.rows(t, s.raw(), measurement, field)
		if len(found) >= want {
			return found
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d points of %s, want %d", len(found), measurement, want)
		case <-tick.C:
		}
	}
}

func intervalsBecomePoints(t *testing.T, server *influxd.Server) {
	s := storeOn(t, server)
	k := newBooks(t)
	k.furnish()
	k.startWith(New(s.config))
	k.publish(lately(1), lately(2), lately(3))
	gpu := s.eventually(t, "gpu_power", "energy_uj", 3)
	last := slices.MaxFunc(slices.Collect(maps.Keys(gpu)), time.Time.Compare)
	for _, c := range []struct {
		measurement, field string
		want               any
		tags               map[string]any
	}{
		{"gpu_power", "energy_uj", int64(900e6), map[string]any{"cluster": "lab", "node": "n1", "gpu_uuid": "GPU-1", "model": "H100"}},
		{"gpu_power", "power_w", 300.0, nil},
		{"gpu_power", "limit_w", 700.0, nil},
		{"gpu_power", "sm_util_ratio", 0.8, nil},
		{"cpu_energy", "energy_uj", int64(60e6), map[string]any{"node": "n1", "zone": "cpu", "socket": "all", "source": "rapl"}},
	} {
		row := s.rows(t, s.raw(), c.measurement, c.field)[last]
		if row["_value"] != c.want {
			t.Errorf("%s.%s is %v, want %v", c.measurement, c.field, row["_value"], c.want)
		}
		for key, want := range c.tags {
			if row[key] != want {
				t.Errorf("%s: tag %s is %v, want %v", c.measurement, key, row[key], want)
			}
		}
	}
	jobs := s.query(t, s.raw(), `filter(fn: (r) => r._measurement == "job_energy")
		|> pivot(rowKey: ["_time", "component", "tenant", "user", "device_model", "method"], columnKey: ["_field"], valueColumn: "_value") |> group() |> sort(columns: ["component", "_time"])`)
	if len(jobs) != 6 {
		t.Fatalf("%d points of jobs", len(jobs))
	}
	want := influx.Row{
		"component": "gpu", "tenant": "vision", "user": "ann", "device_model": "H100", "method": "nvml_counter", "job_id": "a", "active_uj": int64(240e6), "idle_uj": int64(0),
		"estimated": false, "measured_s": 1.0, "expected_s": 1.0,
	}
	maps.DeleteFunc(jobs[5], func(column string, _ any) bool { _, wanted := want[column]; return !wanted })
	if d := cmp.Diff(want, jobs[5]); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if pcm := s.rows(t, s.config.InfluxPipeTune, "pcm_power/node_utilization", "value"); len(pcm) != 3 || pcm[last]["_value"] != 20.0 || pcm[last]["nodename"] != "n1" {
		t.Errorf("under PipeTune's names: %v", pcm)
	}
}

func factsOfJobsBecomePoints(t *testing.T, server *influxd.Server) {
	s := storeOn(t, server)
	k := newBooks(t)
	k.furnish()
	k.startWith(New(s.config))
	now := time.Now().Add(-time.Minute)
	loss := 0.5
	fact := func(name, key string, body any, after time.Duration) event.Fact {
		f := event.JobFact("a", name, key, body)
		f.Time = now.Add(after)
		return f
	}
	marked := lately(1)
	m := marked.Body.(event.Measured)
	m.Epochs = []event.EpochMark{{Job: "a", EpochsDone: 1, At: m.From.Add(500 * time.Millisecond)}}
	marked.Body = m
	k.publish(
		marked,
		fact(event.FactStarted, "s", event.Started{Attempt: 1, Node: "n1", Devices: []train.DeviceID{"gpu:0"}}, 0),
		fact(event.FactEpochEnded, "e1", event.EpochEnded{EpochsDone: 1, EpochSeconds: 4, Loss: &loss, Devices: 1}, time.Second),
		fact(event.FactEpochEnded, "e1 again", event.EpochEnded{EpochsDone: 1, EpochSeconds: 4, Loss: &loss, Devices: 1}, 2*time.Second),
		fact(event.FactSucceeded, "end", event.Succeeded{EpochsDone: 1}, 3*time.Second),
	)
	s.eventually(t, "gpu_power", "power_w", 1) // the end may already have been read
	k.publish(lately(2))
	k.job(train.Job{ID: "a", State: train.StateSucceeded, FinishedAt: m.To.Add(time.Millisecond), Spec: train.Spec{User: "ann", Tenant: "vision", BatchSize: 64}})
	if decided := s.eventually(t, "plan_decision", "actual_uj", 1); decided[now.Add(3*time.Second).UTC()]["_value"] != int64(490e6) {
		t.Errorf("energy of the job %v: want that of both its intervals", decided)
	}
	texts := s.eventually(t, "job_event", "text", 2)
	if got := texts[now.UTC()]["_value"]; got != "a started on n1 (gpu:0)" {
		t.Errorf("text %v of %v", got, texts)
	}
	epochs := s.eventually(t, "job_epoch", "metric", 1)
	if energy := s.eventually(t, "job_epoch", "energy_uj", 1); energy[now.Add(time.Second).UTC()]["_value"] != int64(122.5e6) {
		t.Errorf("energy of the epoch %v: want half of 240 J of the GPU and 5 J of the processors", energy)
	}
	if row := epochs[now.Add(time.Second).UTC()]; len(epochs) != 1 || row["_value"] != 0.5 || row["tenant"] != "vision" {
		t.Errorf("epochs %v", epochs)
	}
}

// unsteady is a proxy before a server that fails some requests: it drops some, and keeps back the answer of others.
func unsteady(t *testing.T, server string) (string, *atomic.Int64) {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	var bad atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	random := rand.New(rand.NewPCG(1, 2))
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fate := random.IntN(3)
		if bad.Load() == 0 {
			fate = 1 // however few requests there will be
		}
		switch fate {
		case 0:
			bad.Add(1)
			http.Error(w, "try later", http.StatusServiceUnavailable)
		case 1:
			bad.Add(1)
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			http.Error(w, "the answer was lost", http.StatusBadGateway)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	return front.URL, &bad
}

func anUnsteadyDatabaseLosesAndDoublesNothing(t *testing.T, server *influxd.Server) {
	s := storeOn(t, server)
	var bad *atomic.Int64
	s.config.InfluxURL, bad = unsteady(t, server.URL)
	k := newBooks(t)
	k.furnish()
	k.startWith(New(s.config))
	const n = 120
	for i := range uint64(n) {
		k.publish(lately(i + 1))
	}
	s.whole(t, n)
	if bad.Load() == 0 {
		t.Error("no request failed: nothing was tested")
	}
}

// whole checks that each second is there once and that the counter never stepped otherwise.
func (s store) whole(t *testing.T, n int) {
	t.Helper()
	found := s.eventually(t, "gpu_power", "energy_uj", n)
	if len(found) != n {
		t.Fatalf("%d points, want %d", len(found), n)
	}
	for i, at := range slices.SortedFunc(maps.Keys(found), time.Time.Compare) {
		if want := int64(i+1) * 300e6; found[at]["_value"] != want {
			t.Fatalf("point %d is %v, want %d", i, found[at]["_value"], want)
		}
	}
	if jobs := s.eventually(t, "job_energy", "active_uj", n); len(jobs) != n {
		t.Fatalf("%d points of the job, want %d", len(jobs), n)
	}
}

// process runs the service as a process of its own.
func (s store) process(t *testing.T, bus, dir string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, asService, "--nats", bus, "--data-dir", dir, "--http", "127.0.0.1:0", //nolint:noctx // the test kills it
		"--influx-url", s.config.InfluxURL)
	cmd.Env = append(os.Environ(), "SWITCHYARD_INFLUX_DATABASE="+s.config.InfluxDatabase)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func aKillOfServiceAndDatabaseLosesAndDoublesNothing(t *testing.T, server *influxd.Server) {
	s := storeOn(t, server)
	k := newBooks(t)
	k.furnish()
	dir := t.TempDir()
	const n, kills = 160, 3
	var publishing conc.WaitGroup
	defer publishing.Wait()
	publishing.Go(func() {
		for i := range uint64(n) {
			k.publish(lately(i + 1))
		}
	})
	for i := range kills {
		p := s.process(t, k.url, dir)
		// Somewhere in the middle: as soon as more is written than the last time.
		s.eventually(t, "gpu_power", "energy_uj", (i+1)*n/(kills+2))
		if i%2 == 1 {
			server.Kill()
		}
		_ = p.Process.Kill()
		_ = p.Wait()
		if i%2 == 1 {
			server.Run(t)
		}
	}
	s.process(t, k.url, dir)
	s.whole(t, n)
}

func lossesFromTheStreamAreReported(t *testing.T, server *influxd.Server) {
	s := storeOn(t, server)
	k := newBooks(t)
	prices, err := grid.Load(grid.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRecorder(within(t), k.bus, s.config, s.client, prices, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var batch []bus.Message
	for i, n := range []uint64{1, 2, 7, 8} {
		f := lately(n)
		batch = append(batch, message(t, f.Body.(event.Measured), uint64(i+1))...)
	}
	batch = append(batch, bus.Message{Sequence: 9, Data: []byte("rubbish")})
	for range 2 {
		if err := r.measured(within(t), batch); err != nil {
			t.Fatal(err)
		}
	}
	if got := testutil.ToFloat64(r.missing); got != 4 {
		t.Errorf("%g intervals said to be missing, want 4", got)
	}
	if found := s.rows(t, s.raw(), "gpu_power", "energy_uj"); len(found) != 4 {
		t.Errorf("%d points, want 4", len(found))
	}
}
