package influx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/services/energy/series"
	"github.com/switchyard-dl/switchyard/test/influxd"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestOnInfluxDB runs all tests on one server, since starting it takes longer than most of them.
func TestOnInfluxDB(t *testing.T) {
	server := influxd.Start(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *Client)
	}{
		{"points are stored once", pointsAreStoredOnce},
		{"preparing can be repeated and corrects", preparingCanBeRepeatedAndCorrects},
		{"continuous queries and tasks thin out alike", continuousQueriesAndTasksThinOutAlike},
		{"what is not stored is an error", func(t *testing.T, c *Client) { whatIsNotStoredIsAnError(t, c, server) }},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, database(t, server)) })
	}
}

// database returns a client of databases without any point.
func database(t *testing.T, server *influxd.Server) *Client {
	t.Helper()
	c := Open(Config{URL: server.URL, Org: "switchyard"})
	t.Cleanup(c.Close)
	for _, name := range []string{"switchyard", "energy"} {
		if err := c.execute(within(t), fmt.Sprintf("DROP DATABASE %q", name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Prepare(within(t), Setup{Database: "switchyard", PipeTune: "energy"}); err != nil {
		t.Fatal(err)
	}
	return c
}

func query(t *testing.T, c *Client, flux string) []Row {
	t.Helper()
	rows, err := c.Query(within(t), flux)
	if err != nil {
		t.Fatalf("%v\n%s", err, flux)
	}
	return rows
}

func pointsAreStoredOnce(t *testing.T, c *Client) {
	at := time.Now().Add(-time.Minute).UTC()
	point := series.Point{
		Measurement: "job_energy", Tags: map[string]string{"user": `o'neil, "ann" = \x`, "shard": "0"},
		Fields: map[string]any{"job_id": `a "b" \c`, "active_uj": int64(1) << 60, "estimated": true, "measured_s": 0.5}, Time: at,
	}
	for range 3 {
		if err := c.Write(within(t), "switchyard/raw", []series.Point{point}); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]any{}
	for _, row := range query(t, c, `from(bucket: "switchyard/raw") |> range(start: -1h)`) {
		field := row["_field"].(string)
		if _, twice := got[field]; twice || row["user"] != point.Tags["user"] || !row["_time"].(time.Time).Equal(at) {
			t.Errorf("row %v", row)
		}
		got[field] = row["_value"]
	}
	if d := cmp.Diff(point.Fields, got); d != "" {
		t.Errorf("(-written +read)\n%s", d)
	}
}

func whatIsNotStoredIsAnError(t *testing.T, c *Client, server *influxd.Server) {
	p := series.Point{Measurement: "m", Tags: map[string]string{"a": "b"}, Fields: map[string]any{"v": 1.0}, Time: time.Now()}
	if err := c.Write(within(t), "nowhere/raw", []series.Point{p}); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("a database that is not there: %v, want an error that may pass", err)
	}
	if err := c.Write(within(t), "switchyard/raw", []series.Point{p}); err != nil {
		t.Fatal(err)
	}
	p.Fields = map[string]any{"v": "text"}
	if err := c.Write(within(t), "switchyard/raw", []series.Point{p}); !errors.Is(err, ErrRefused) {
		t.Errorf("a field of another type: %v, want ErrRefused", err)
	}
	server.Kill()
	if err := c.Write(within(t), "switchyard/raw", []series.Point{p}); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("no server: %v, want an error that may pass", err)
	}
}

func preparingCanBeRepeatedAndCorrects(t *testing.T, c *Client) {
	if err := c.execute(within(t), `ALTER RETENTION POLICY "1h" ON "switchyard" DURATION 200h`); err != nil {
		t.Fatal(err)
	}
	did, err := c.Prepare(within(t), Setup{Database: "switchyard"})
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + len(series.Stages()) + 2*len(series.Rollups()); len(did) != want {
		t.Errorf("said %d things, want %d:\n%s", len(did), want, strings.Join(did, "\n"))
	}
	status, text, err := c.post(within(t), "query?db=switchyard&q=SHOW+RETENTION+POLICIES", "application/x-www-form-urlencoded", "")
	if err != nil || status != 200 {
		t.Fatal(status, err)
	}
	for _, want := range []string{`["raw","168h0m0s","24h0m0s",1,true]`, `["1m","2160h0m0s","24h0m0s",1,false]`, `["1h","17520h0m0s","168h0m0s",1,false]`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// probesSent is the number of probes in each window of the link in a sample.
const probesSent = 300

// sample returns two hours of two GPUs, of two jobs of one user and of a link, at the second quarter of each minute.
func sample(end time.Time) []series.Point {
	var points []series.Point
	for at := end.Add(-2 * time.Hour); at.Before(end); at = at.Add(15 * time.Second) {
		n := int64(at.Sub(end.Add(-2*time.Hour)) / time.Second)
		points = append(points, series.Point{
			Measurement: series.NetLink, Tags: map[string]string{"cluster": "c", "link": "to-n1"}, Fields: map[string]any{"sent": int64(probesSent), "lost": n % 2}, Time: at,
		})
		for gpu := range int64(2) {
			points = append(points, series.Point{
				Measurement: series.GPUPower, Tags: map[string]string{"cluster": "c", "node": "n1", "gpu_uuid": fmt.Sprint("GPU-", gpu), "model": "H100"},
				Fields: map[string]any{"energy_uj": n * 1e8, "power_w": 100 + float64(n%60)}, Time: at,
			}, series.Point{
				Measurement: series.JobEnergy, Time: at,
				Tags:   map[string]string{"tenant": "t", "user": "ann", "component": "gpu", "device_model": "H100", "method": "nvml_counter", "node": "n1", "shard": fmt.Sprint(gpu)},
				Fields: map[string]any{"job_id": fmt.Sprint("j", gpu), "active_uj": int64(1e6), "measured_s": 1.0, "expected_s": 1.0},
			})
		}
	}
	return points
}

// thinned returns the values of a stage, by series, field and time.
func thinned(rows []Row) map[string]any {
	all := map[string]any{}
	for _, r := range rows {
		var key []string
		for _, column := range slices.Sorted(maps.Keys(r)) {
			if !strings.HasPrefix(column, "_") && column != "result" && column != "table" && column != "shard" {
				key = append(key, fmt.Sprint(r[column]))
			}
		}
		all[fmt.Sprint(r["_measurement"], r["_field"], r["_time"].(time.Time).UTC().Format(time.TimeOnly), key)] = r["_value"]
	}
	return all
}

func continuousQueriesAndTasksThinOutAlike(t *testing.T, c *Client) {
	ctx := within(t)
	if err := c.Write(ctx, "switchyard/raw", sample(time.Now().UTC().Truncate(time.Minute))); err != nil {
		t.Fatal(err)
	}
	for _, stage := range series.Stages()[1:] {
		// Read before the server reads its clock: a window that begins in between must not be missing below.
		from := time.Now().UTC().Truncate(stage.Every).Add(-stage.Back)
		// The server of 1.8 can also compute what the task of version 2 would write.
		want := map[string]any{}
		for _, r := range series.Rollups() {
			for _, f := range r.Fields {
				maps.Copy(want, thinned(query(t, c, "import \"date\"\nimport \"experimental\"\n"+thin("switchyard", stage, r, f))))
			}
		}
		if len(want) < 8 {
			t.Fatalf("%s: the tasks give %d values", stage.Name, len(want))
		}
		// The server runs the queries on its own schedule; the test runs their statements itself, as the server would.
		for _, r := range series.Rollups() {
			statement := continuousQuery("switchyard", stage, r)
			_, statement, _ = strings.Cut(statement, "BEGIN ")
			statement = strings.TrimSuffix(statement, " END")
			since := fmt.Sprintf(" WHERE time >= '%s' GROUP BY", from.Format(time.RFC3339))
			if err := c.execute(ctx, strings.Replace(statement, " GROUP BY", since, 1)); err != nil {
				t.Fatal(err)
			}
		}
		got := thinned(query(t, c, fmt.Sprintf(`from(bucket: "switchyard/%s") |> range(start: -1d)`, stage.Name)))
		for key, value := range want {
			if d := cmp.Diff(fmt.Sprint(value), fmt.Sprint(got[key])); d != "" {
				t.Errorf("%s: %s (-task +query)\n%s", stage.Name, key, d)
			}
			if strings.HasPrefix(key, series.NetLink+"sent") && value != float64(probesSent) {
				t.Errorf("%s: %s is %v: windows of a link overlap and do not add up", stage.Name, key, value)
			}
		}
	}
}
