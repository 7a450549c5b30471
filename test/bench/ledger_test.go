package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy"
)

// BenchmarkLedger books the intervals of nodes with eight devices and two jobs each, which wait in the stream, beside
// the bare compare-and-swaps of the same bus. With 1,000 nodes there are about four intervals of a node for each write
// of its book; with 5,000 nodes each interval is written on its own.
func BenchmarkLedger(b *testing.B) {
	for _, c := range []struct{ nodes, seconds int }{{1000, 24}, {5000, 4}} {
		b.Run(fmt.Sprint(c.nodes), func(b *testing.B) {
			for b.Loop() {
				server, keys := bustest.StartGuarded(b)
				swaps := bareSwaps(b, server.URL(), keys, 10000)
				conn := bustest.ConnectWith(b, bus.Config{URL: server.URL(), Keys: string(keys), Name: "nodeagent"})
				fillIntervals(b, conn, c.nodes, c.seconds)
				common := run.Common{NATS: server.URL(), Keys: string(keys), HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: b.TempDir()}
				before, began := seconds(b, os.Getpid()), time.Now()
				together(b, common, energy.New(settings.Energy{}))
				for range tick.Every(b.Context(), 20*time.Millisecond) {
					if handled, err := conn.Handled(b.Context(), event.StreamSamples, "energy"); err == nil && handled == uint64(c.nodes*c.seconds) {
						break
					}
				}
				took := time.Since(began).Seconds()
				intervals := float64(c.nodes * c.seconds)
				b.ReportMetric(swaps, "bare-cas/s")
				b.ReportMetric(intervals/took, "intervals/s")
				b.ReportMetric(intervals/took/swaps, "intervals/cas")
				b.ReportMetric(1e6*(seconds(b, os.Getpid())-before)/intervals, "cpu-us/interval")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// fillIntervals publishes intervals of nodes, second by second.
func fillIntervals(b *testing.B, conn *bus.Bus, nodes, seconds int) {
	b.Helper()
	start := time.Now().UTC().Truncate(time.Hour)
	for second := range seconds {
		from := start.Add(time.Duration(second) * time.Second)
		side := pool.New().WithMaxGoroutines(writers)
		for i := range nodes {
			side.Go(func() {
				n := machine(i)
				var running []train.Attempt
				for j := range 2 {
					running = append(running, train.Attempt{Job: train.JobID(fmt.Sprintf("job-%d-%d", i, j)), Devices: []train.DeviceID{n.Devices[j].ID}})
				}
				if err := conn.Publish(b.Context(), measured(n, running, second+1, from, from.Add(time.Second))); err != nil {
					b.Error(err)
				}
			})
		}
		side.Wait()
	}
}
