package planner

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// BenchmarkLongQueue is a round of the planner, without the bus, in which one of 10,000 waiting jobs is news: from its
// record to the facts that would be published. It reports processor time.
func BenchmarkLongQueue(b *testing.B) {
	for _, nodes := range []int{1, 128} {
		devices := 2
		if nodes > 1 {
			devices = 8
		}
		b.Run(fmt.Sprintf("%d devices", nodes*devices), func(b *testing.B) {
			now := time.Unix(1_000_000, 0)
			l := &loop{cache: newCache(), published: map[train.JobID]publication{}, policy: plan.Switchyard{}}
			for i := range nodes {
				n := train.Node{ID: train.NodeID(fmt.Sprintf("n%03d", i)), SeenAt: now}
				for d := range devices {
					n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprintf("cpu:%d", d)), Kind: train.KindCPU})
				}
				l.cache.observeNode(now, bus.Entry[train.Node]{Key: string(n.ID), Value: n}, false)
			}
			arrive := func(i int) {
				id := train.JobID(fmt.Sprintf("job-%05d", i))
				spec := train.Spec{Name: "long", Command: []string{"sleep", "3600"}}.WithDefaults()
				j := train.Job{ID: id, Spec: spec, State: train.StateQueued, SubmittedAt: now.Add(time.Duration(i) * time.Millisecond)}
				l.cache.observeJob(bus.Entry[*train.Job]{Key: string(id), Value: &j}, false)
			}
			for i := range 10_000 {
				arrive(i)
			}
			round := func() {
				next := plan.Decide(l.cache.state(now, l.last, l.known, plan.State{}), l.policy)
				if !l.known || differs(l.last, next) {
					l.newest = newest{last: next, known: true, loaded: true}
				}
				for more := true; more; {
					var sent []publication
					_, sent, more = l.news()
					for _, s := range sent {
						l.published[s.job] = s
					}
				}
			}
			round()
			before := processorTime(b)
			for i := 0; b.Loop(); i++ {
				arrive(10_000 + i)
				round()
			}
			b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
