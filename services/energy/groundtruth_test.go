package energy

import (
	"context"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/energy/influx"
	"github.com/switchyard-dl/switchyard/test/influxd"
)

// The ground truth is where PipeTune's users look for it, the newest last.
func theGroundTruthIsMirrored(t *testing.T, server *influxd.Server) {
	s := storeOn(t, server)
	learnt := func(revision string, cores, seconds float64) event.Fact {
		f := event.TuneFact("exp", event.FactLearnt, "learnt/"+revision, event.Learnt{Best: []event.BestSetting{
			{Cluster: "kind-1", BatchSize: 1024, Setting: map[string]float64{"cores": cores, "memory_mib": 4096}, EpochSeconds: seconds, Workloads: 2},
			{Cluster: "kind-0", BatchSize: 64, Setting: map[string]float64{"cores": 1}, EpochJoules: 5, Workloads: 1},
		}})
		f.Source = "experiments"
		return f
	}
	k := newBooks(t)
	k.startWith(New(s.config))
	k.publish(learnt("1", 8, 57.4), learnt("2", 4, 48.6))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var all []influx.Row
	for len(all) < 2 {
		all = s.query(t, s.config.InfluxGroundTruth, `filter(fn: (r) => r._measurement == "clusters")
			|> pivot(rowKey: ["_time", "clusterID", "batch"], columnKey: ["_field"], valueColumn: "_value") |> group() |> sort(columns: ["_time"])`)
		select {
		case <-ctx.Done():
			t.Fatalf("%d points, want 2", len(all))
		case <-tick.C:
		}
	}
	for i, want := range []influx.Row{
		{"clusterID": "1", "batch": "1024", "cores": "8", "memory": "4", "duration": "57"},
		{"clusterID": "1", "batch": "1024", "cores": "4", "memory": "4", "duration": "49"},
	} {
		for column, value := range want {
			if all[i][column] != value {
				t.Errorf("point %d: %s is %v, want %v", i, column, all[i][column], value)
			}
		}
	}
}
