package bench

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sourcegraph/conc/pool"
)

// BenchmarkSharing trains two real networks on all cores of this machine, one after the other and side by side. gain is how much sooner both are done when they
// share the cores: the median of all pairs of runs, beside the least and the most. The machine must have nothing else to do.
func BenchmarkSharing(b *testing.B) {
	trainer := filepath.Join(b.TempDir(), "trainer")
	if out, err := exec.Command("go", "build", "-o", trainer, "../../examples/gotrainer").CombinedOutput(); err != nil {
		b.Fatalf("build the trainer: %v\n%s", err, out)
	}
	for _, batch := range []int{4, 32, 256} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			var inTurn, shared, gains []float64
			for b.Loop() {
				one, two := pair(b, trainer, batch, 1), pair(b, trainer, batch, 2)
				inTurn, shared, gains = append(inTurn, one), append(shared, two), append(gains, one/two)
			}
			for name, values := range map[string][]float64{"inturn_s": inTurn, "shared_s": shared, "gain": gains} {
				slices.Sort(values)
				b.ReportMetric(values[len(values)/2], name)
			}
			b.ReportMetric(gains[0], "gain_least")
			b.ReportMetric(gains[len(gains)-1], "gain_most")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// pair trains two networks, so many at once, and gives the seconds until both are done.
func pair(b *testing.B, trainer string, batch, atOnce int) float64 {
	b.Helper()
	began := time.Now()
	training := pool.New().WithErrors().WithMaxGoroutines(atOnce)
	for i := range 2 {
		cmd := exec.CommandContext(b.Context(), trainer, "-hidden", "256", "-training-set-size", "8000", "-epochs", "3", "-batch-size", fmt.Sprint(batch), "-seed", fmt.Sprint(i+1))
		// Each has two workers that wait for each other at every step, as a job on two devices has.
		cmd.Env = []string{"SWITCHYARD_SNAPSHOTS_DIR=" + b.TempDir(), "NUM_GPUS=2"}
		training.Go(func() error {
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("train: %w\n%s", err, out)
			}
			return nil
		})
	}
	if err := training.Wait(); err != nil {
		b.Fatal(err)
	}
	return time.Since(began).Seconds()
}
