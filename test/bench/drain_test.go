package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// BenchmarkDrain submits SCALE_JOBS jobs (10,000) at once to a `switchyard up` with SCALE_NODES nodes (128) of eight
// devices, and waits until each has run as a no-op: a process of its own plays the executors and ends an attempt as
// soon as it has started. It reports how many jobs are admitted and how many end a second, and what that costs. It
// fails unless each job started once, succeeded once, and is recorded so.
func BenchmarkDrain(b *testing.B) {
	jobs, nodes := number(b, "SCALE_JOBS", "10000"), number(b, "SCALE_NODES", "128")
	for b.Loop() {
		i, agents, conn := startCluster(b, agentsOptions{Nodes: nodes, Every: 5 * time.Second, NoOps: true})
		seen := newSeen(b, conn)
		began, before := time.Now(), i.usedSeconds()
		submitAll(b, conn, jobs, func(n int) train.Spec {
			return train.Spec{Name: "no-op", Project: fmt.Sprintf("p%d", n%10), Command: []string{"true"}, Device: train.KindGPU, Devices: 1}
		})
		seen.await(event.FactAdmitted, jobs)
		b.ReportMetric(float64(jobs)/time.Since(began).Seconds(), "admitted/s")
		seen.await(event.FactSucceeded, jobs)
		took := time.Since(began).Seconds()
		b.ReportMetric(took, "drained-s")
		b.ReportMetric(float64(jobs)/took, "jobs/s")
		b.ReportMetric(1000*(i.usedSeconds()-before)/float64(jobs), "services-ms/job")
		b.ReportMetric(1000*seconds(b, agents.Process.Pid)/float64(jobs), "generator-ms/job")
		b.ReportMetric(i.memoryMiB("VmHWM"), "up-peak-MiB")
		b.ReportMetric(i.storedBytes()/(1<<20), "bus-disk-MiB")
		seen.quiet(conn)
		if started, ended := seen.counts[event.FactStarted], seen.counts[event.FactSucceeded]; started != jobs || ended != jobs {
			b.Errorf("%d jobs started %d times and succeeded %d times", jobs, started, ended)
		}
		checkSucceeded(b, conn, jobs)
		b.ReportMetric(0, "ns/op")
		i.kill()
	}
}

// checkSucceeded checks that the register has each job, and that it succeeded.
func checkSucceeded(b *testing.B, conn *bus.Bus, jobs int) {
	b.Helper()
	records, err := bus.OpenKV(b.Context(), conn, contract.Jobs)
	if err != nil {
		b.Fatal(err)
	}
	all, err := records.List(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	states := map[string]train.State{}
	for _, e := range all {
		states[e.Key] = e.Value.State
	}
	wrong := 0
	for n := range jobs {
		if states[string(numbered(n))] != train.StateSucceeded {
			wrong++
		}
	}
	if wrong > 0 || len(all) != jobs {
		b.Errorf("the register has %d records of %d jobs; %d of these jobs have not succeeded there", len(all), jobs, wrong)
	}
}
