package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// BenchmarkManyPods fills a simulated cluster, then starts and cancels single jobs in it. It measures the executor's
// resources for that many pods, and the times from a plan to the pod, from a cancellation to the pod's deletion, and
// from the start of another executor to its first action. Run it with -benchtime 1x.
func BenchmarkManyPods(b *testing.B) {
	for _, pods := range []int{5000, 10_000} {
		b.Run(strconv.Itoa(pods), func(b *testing.B) { manyPods(b, pods) })
	}
}

func manyPods(b *testing.B, pods int) {
	const jobsOfANode, podsOfAJob, changes = 2, 5, 100
	nodes := pods / jobsOfANode / podsOfAJob
	y := fakeNodes(b, nodes, jobsOfANode*podsOfAJob+1)
	w := y.podWatcher(y.client(), y.namespace)
	empty := y.use("executor")
	planned := y.queued("full-", nodes*jobsOfANode, func(i int) []train.Part { return onNode(i%nodes, i/nodes*podsOfAJob, podsOfAJob) })
	began := time.Now()
	y.plan(planned...)
	filled := y.await(w, "full-", pods, made).Sub(began)
	y.await(w, "full-", pods, ran)
	y.untilRunning(len(planned))
	full := y.use("executor")
	b.ReportMetric(float64(pods)/filled.Seconds(), "pods/s")
	b.ReportMetric(float64(full.residentMiB), "MiB")
	b.ReportMetric(float64(full.residentMiB-empty.residentMiB)*1024/float64(pods), "KiB/pod")
	b.ReportMetric((full.processor-empty.processor).Seconds()*1000/float64(pods), "cpu-ms/pod")

	b.Logf("%d pods: %+v, in the beginning %+v, filled in %v", pods, full, empty, filled)
	// Nothing happens in this time, except that the watches of the bus list all records twice.
	rest := time.NewTimer(time.Minute)
	before := time.Now()
	select {
	case <-rest.C:
	case <-y.ctx.Done():
	}
	idle := y.use("executor")
	b.ReportMetric(100*(idle.processor-full.processor).Seconds()/time.Since(before).Seconds(), "cpu-%-at-rest")

	var starts, ends []time.Duration
	for i := range changes {
		prefix := fmt.Sprintf("one%d-", i)
		one := y.queued(prefix, 1, func(int) []train.Part { return onNode(i, jobsOfANode*podsOfAJob, 1) })
		began := time.Now()
		y.plan(append(slices.Clip(planned), one...)...)
		starts = append(starts, y.await(w, prefix, 1, made).Sub(began))
		y.running(one[0].Job, 1)
		began = time.Now()
		y.must(y.bus.Publish(y.ctx, event.OnceFact(one[0].Job, event.FactCancelRequested, "cancel", event.CancelRequested{})))
		ends = append(ends, y.await(w, prefix, 1, leaving).Sub(began))
	}
	changed := y.use("executor")
	b.ReportMetric((changed.processor-idle.processor).Seconds()*1000/(2*changes), "cpu-ms/change")
	for name, times := range map[string][]time.Duration{"start": starts, "cancel": ends} {
		b.ReportMetric(millis(quantile(times, 0.5)), name+"-ms-p50")
		b.ReportMetric(millis(quantile(times, 0.99)), name+"-ms-p99")
	}
	y.signal("executor", syscall.SIGTERM)
	one := y.queued("again-", 1, func(int) []train.Part { return onNode(changes, jobsOfANode*podsOfAJob, 1) })
	y.plan(append(slices.Clip(planned), one...)...)
	began = time.Now()
	y.start("executor")
	b.ReportMetric(millis(y.await(w, "again-", 1, made).Sub(began)), "restart-ms")
	b.ReportMetric(0, "ns/op")
}

// quantile returns the time that a share of all times does not exceed.
func quantile(times []time.Duration, share float64) time.Duration {
	times = slices.Sorted(slices.Values(times))
	return times[min(int(share*float64(len(times))), len(times)-1)]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// use is the resource use of a process.
type use struct {
	residentMiB int64
	processor   time.Duration
}

// use reads the kernel's counts for a process; its ticks are hundredths of a second.
func (y *yard) use(name string) use {
	y.t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(y.procs[name].Process.Pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	y.must(err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var counted [3]int64 // user and system ticks, resident pages
	for i, field := range []int{11, 12, 21} {
		counted[i], err = strconv.ParseInt(fields[field], 10, 64)
		y.must(err)
	}
	return use{residentMiB: counted[2] * int64(os.Getpagesize()) >> 20, processor: time.Duration(counted[0]+counted[1]) * 10 * time.Millisecond}
}
