package bench

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/proc"
)

// BenchmarkSharing trains two real networks on all cores of this machine, one after the other and side by side. gain is
// the time saved by sharing the cores: the median of all pairs of runs, with minimum and maximum. others is the part of
// the processors' work by other processes; unless it is small the figures mean nothing, because four busy threads get
// more of a machine than two.
func BenchmarkSharing(b *testing.B) {
	trainer := filepath.Join(b.TempDir(), "trainer")
	if out, err := exec.Command("go", "build", "-o", trainer, "../../examples/gotrainer").CombinedOutput(); err != nil {
		b.Fatalf("build the trainer: %v\n%s", err, out)
	}
	for _, batch := range []int{4, 32, 256} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			var inTurn, shared, gains, others []float64
			for b.Loop() {
				one, two := trainTwo(b, trainer, batch, 1), trainTwo(b, trainer, batch, 2)
				inTurn, shared, gains = append(inTurn, one.seconds), append(shared, two.seconds), append(gains,
					one.seconds/two.seconds)
				others = append(others, one.others, two.others)
			}
			for name, values := range map[string][]float64{"inturn_s": inTurn, "shared_s": shared, "gain": gains, "others": others} {
				slices.Sort(values)
				b.ReportMetric(values[len(values)/2], name)
			}
			b.ReportMetric(gains[0], "gain_least")
			b.ReportMetric(gains[len(gains)-1], "gain_most")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// trained is the time of two trainings together, and the part of the work of all processors in that time by other
// processes.
type trained struct{ seconds, others float64 }

// trainTwo trains two networks, atOnce at a time.
func trainTwo(b *testing.B, trainer string, batch, atOnce int) trained {
	b.Helper()
	busy := busySeconds(b)
	began := time.Now()
	training := pool.New().WithErrors().WithMaxGoroutines(atOnce)
	var own atomic.Int64
	for i := range 2 {
		cmd := exec.CommandContext(b.Context(), trainer, "-hidden", "256", "-training-set-size", "8000", "-epochs", "1",
			"-batch-size", fmt.Sprint(batch), "-seed", fmt.Sprint(i+1))
		// Each has two workers that wait for each other at every step, as a job on two devices has.
		cmd.Env = []string{"SWITCHYARD_SNAPSHOTS_DIR=" + b.TempDir(), "NUM_GPUS=2"}
		training.Go(func() error {
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("train: %w\n%s", err, out)
			}
			own.Add(int64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()))
			return nil
		})
	}
	if err := training.Wait(); err != nil {
		b.Fatal(err)
	}
	busy = busySeconds(b) - busy
	return trained{time.Since(began).Seconds(), max(1-time.Duration(own.Load()).Seconds()/busy, 0)}
}

// busySeconds returns the work of all processors since the machine was started.
func busySeconds(b *testing.B) float64 {
	b.Helper()
	cpu, err := proc.Root("/proc").CPU()
	if err != nil {
		b.Fatal(err)
	}
	return cpu.Busy.Seconds()
}
