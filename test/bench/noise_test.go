package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkGradientNoise trains LeNet-5 with PyTorch on one thread, with and without a measurement of its gradient
// noise. ratio is the processor time of a step with over that of one without: the median of all rounds, with the
// quartiles.
func BenchmarkGradientNoise(b *testing.B) {
	python := "/usr/bin/python3"
	if exec.Command(python, "-c", "import torch").Run() != nil {
		b.Skip(python + " has no torch (Debian: apt-get install python3-torch)")
	}
	library, err := filepath.Abs("../../libs/python")
	if err != nil {
		b.Fatal(err)
	}
	for _, steps := range []struct{ batch, passes string }{{"64", "1"}, {"64", "2"}} {
		b.Run("batch="+steps.batch+"/passes="+steps.passes, func(b *testing.B) {
			var ratios []float64
			for b.Loop() {
				const rounds = "10"
				cmd := exec.CommandContext(b.Context(), python, filepath.Join(library, "tests/noise_cost.py"), steps.batch, steps.passes, rounds)
				cmd.Env = append(os.Environ(), "PYTHONPATH="+library, "OMP_NUM_THREADS=1")
				out, err := cmd.Output()
				if err != nil {
					b.Fatal(err)
				}
				for word := range strings.FieldsSeq(string(out)) {
					ratio, err := strconv.ParseFloat(word, 64)
					if err != nil {
						b.Fatal(err)
					}
					ratios = append(ratios, ratio)
				}
			}
			slices.Sort(ratios)
			for name, at := range map[string]int{"ratio_low": len(ratios) / 4, "ratio": len(ratios) / 2, "ratio_high": 3 * len(ratios) / 4} {
				b.ReportMetric(ratios[at], name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
