package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
)

// BenchmarkStart reports what it costs to start one program under a supervisor, beside the cost of the program alone:
// the time until it runs, and the processor time of the supervisor's whole life. "own" is this test program in the
// supervisor's place; a server is far larger.
func BenchmarkStart(b *testing.B) {
	small := filepath.Join(b.TempDir(), attempt.SupervisorName)
	build := exec.CommandContext(b.Context(), "go", "build", "-ldflags", "-s -w", "-o", small, "../../../cmd/switchyard-supervisor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	for name, program := range map[string]Supervisor{"own": {}, "beside": {path: small}} {
		b.Run(name, func(b *testing.B) {
			backend := New(b.TempDir(), program, prepare.Bounds{})
			told := make(chan train.JobID, 1)
			backend.changed = func(jobs ...train.JobID) { told <- jobs[0] }
			marker := "SWITCHYARD_JOB_ATTEMPT=benchmark"
			var alone, started, cpu time.Duration
			for i := 0; b.Loop(); i++ {
				at := time.Now()
				if err := exec.CommandContext(b.Context(), "true").Run(); err != nil {
					b.Fatal(err)
				}
				alone += time.Since(at)
				at = time.Now()
				l := attempt.Launch{
					Version: attempt.Version, Job: "j", Attempt: i + 1, Marker: marker, Output: backend.Output("j"), LimitBytes: 1 << 20,
					Processes: []attempt.Process{{Args: []string{"true"}, Env: []string{"PATH=" + os.Getenv("PATH"), marker}, Dir: "/"}},
				}
				if err := backend.Spawn(l); err != nil {
					b.Fatal(err)
				}
				<-told
				started += time.Since(at)
				for pid := range backend.children {
					var used unix.Rusage
					if _, err := unix.Wait4(pid, nil, 0, &used); err != nil {
						b.Fatal(err)
					}
					cpu += time.Duration(syscall.TimevalToNsec(syscall.Timeval(used.Utime)) + syscall.TimevalToNsec(syscall.Timeval(used.Stime)))
				}
				clear(backend.children)
			}
			each := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(b.N) }
			b.ReportMetric(each(started), "started-ms")
			b.ReportMetric(each(cpu), "cpu-ms")
			b.ReportMetric(float64(started)/float64(alone), "started/true")
			b.ReportMetric(0, "ns/op")
		})
	}
}
