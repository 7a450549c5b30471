package epochs

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func data(t *testing.T, folder string) string {
	t.Helper()
	root := os.Getenv("SWITCHYARD_DATA")
	if root == "" {
		t.Skip("SWITCHYARD_DATA does not name the published measurements")
	}
	return filepath.Join(root, "pipetune", folder)
}

// follow reads a whole log.
func follow(text string) (*bigdl, []Epoch) {
	l := newBigDL()
	var all []Epoch
	for line := range strings.Lines(text) {
		if e, ok := l.Line(line); ok {
			all = append(all, e)
		}
	}
	if e, ok := l.Close(); ok {
		all = append(all, e)
	}
	return l, all
}

func TestPublishedLog(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(data(t, "history"), "bigdl_mnist_10epochs.log"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Start      string    `json:"start_first_Epoch1"`
		Finish     string    `json:"finish_last_accuracy"`
		Duration   float64   `json:"duration_s"`
		Accuracies []float64 `json:"accuracy_per_epoch"`
		Batch      int       `json:"batch"`
		Iterations int       `json:"iterations_per_epoch"`
		Records    int       `json:"records_per_epoch"`
	}
	expected, err := os.ReadFile(filepath.Join(data(t, "derived"), "bigdl_log_expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(expected, &want); err != nil {
		t.Fatal(err)
	}
	l, epochs := follow(string(text))
	if l.Started.Format(time.DateTime) != want.Start || l.Validated.Format(time.DateTime) != want.Finish || l.Validated.Sub(l.Started).Seconds() != want.Duration {
		t.Errorf("from %v to %v", l.Started, l.Validated)
	}
	if len(epochs) != len(want.Accuracies) {
		t.Fatalf("%d epochs, want %d", len(epochs), len(want.Accuracies))
	}
	seconds := 0.0
	for i, e := range epochs {
		seconds += e.Seconds
		if e.Epoch != i+1 || e.Metrics["accuracy"] != want.Accuracies[i] || e.Batch != want.Batch || e.Iterations != want.Iterations || e.Records != want.Records {
			t.Errorf("epoch %+v, want accuracy %g", e, want.Accuracies[i])
		}
	}
	if math.Abs(seconds-1271.62132397) > 1e-6 {
		t.Errorf("%f s in all", seconds)
	}
}

const logLine = "2020-03-31 16:08:0%d INFO  DistriOptimizer$:408 - "

func TestLines(t *testing.T) {
	at := func(second, words string) string { return strings.Replace(logLine, "%d", second, 1) + words + "\n" }
	text := "noise\n" +
		at("1", "[Epoch 1 8/16][Iteration 1][Wall Clock 1.5s] Trained 8 records in 1.5 seconds. Throughput is 5 records/second. Loss is 2.25. More.") +
		at("2", "[Epoch 1 16/16][Iteration 2][Wall Clock 3s] Trained 8 records in 1.5 seconds. Throughput is 5 records/second. Loss is NaN. More.") +
		at("3", "[Epoch 1 16/16][Iteration 2][Wall Clock 3s] Epoch finished. Wall clock time is 3000.5 ms") +
		at("4", "[Epoch 1 16/16][Iteration 2][Wall Clock 3s] Top1Accuracy is Accuracy(correct: 1, count: 2, accuracy: 0.5)") +
		at("4", "[Epoch 1 16/16][Iteration 2][Wall Clock 3s] Loss is (Loss: 3.0, count: 2, Average Loss: 1.5)") +
		at("5", "[Epoch 2 8/16][Iteration 3][Wall Clock 4s] Trained 8 records in 1 seconds. Throughput is 8 records/second. Loss is 1.0. More.") +
		at("6", "[Epoch 2 16/16][Iteration 4][Wall Clock 5s] Epoch finished. Wall clock time is 6001 ms") +
		at("7",
			"[Epoch 3 8/16][Iteration 5][Wall Clock 6s] Trained 8 records in 1 seconds. Throughput is 8 records/second. Loss is 0.5. More.")
	l, epochs := follow(text)
	want := []Epoch{
		{1, 3.0005, 8, 16, 2, nil, map[string]float64{"accuracy": 0.5, "validation_loss": 1.5, "nonfinite_loss": 1}}, {2, 3.0005, 8, 16, 1, new(1.0), nil},
	}
	if diff := cmp.Diff(want, epochs); diff != "" { // the third did not end
		t.Error(diff)
	}
	if l.Started.Second() != 1 || l.Validated.Second() != 4 {
		t.Errorf("from %v to %v", l.Started, l.Validated)
	}
}

// The clock is a Double of the JVM, which is printed with an exponent from ten million on: for milliseconds that is
// after less than three hours.
func TestLongRun(t *testing.T) {
	at := func(words string) string { return strings.Replace(logLine, "%d", "1", 1) + words + "\n" }
	_, epochs := follow(at("[Epoch 1 16/16][Iteration 2][Wall Clock 9000.5s] Epoch finished. Wall clock time is 9000500.0 ms") +
		at("[Epoch 2 16/16][Iteration 4][Wall Clock 10500.5s] Epoch finished. Wall clock time is 1.05005E7 ms") +
		at("[Epoch 3 16/16][Iteration 5][Wall Clock 1.00000005E7s] Epoch finished. Wall clock time is 1.00000005E10 ms"))
	want := []Epoch{{Epoch: 1, Seconds: 9000.5, Records: 16}, {Epoch: 2, Seconds: 1500, Records: 16}, {Epoch: 3, Seconds: 9989500, Records: 16}}
	if diff := cmp.Diff(want, epochs, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Error(diff)
	}
}

// A checkpoint ends an epoch: it is reported before the next one begins. An attempt that goes on from the checkpoint
// counts on, with a clock of its own.
func TestACheckpointEndsAnEpoch(t *testing.T) {
	at := func(words string) string { return strings.Replace(logLine, "%d", "1", 1) + words + "\n" }
	l := newBigDL()
	var reported []int
	for _, line := range []string{
		at("[Epoch 3 16/16][Iteration 6][Wall Clock 3s] Epoch finished. Wall clock time is 3000.0 ms"),
		at("[Epoch 3 16/16][Iteration 6][Wall Clock 3s] Top1Accuracy is Accuracy(correct: 1, count: 2, accuracy: 0.5)"),
		at("[Wall Clock 3.0s] Save model to /tmp/lenet5/20200331_160803"),
		at("[Wall Clock 3.0s] Save optimMethod com.intel.analytics.bigdl.optim.SGD@44cdcc3d to /tmp/lenet5/20200331_160803"),
		at("[Wall Clock 3.0s] Save optimMethod com.intel.analytics.bigdl.optim.SGD@55cdcc3d to /tmp/lenet5/20200331_160803"),
		at("[Epoch 4 16/16][Iteration 8][Wall Clock 5s] Epoch finished. Wall clock time is 5000.0 ms"),
		at("[Wall Clock 5.0s] Save optimMethod com.intel.analytics.bigdl.optim.SGD@44cdcc3d to /tmp/lenet5/20200331_160803"),
	} {
		if e, ok := l.Line(line); ok {
			reported = append(reported, e.Epoch)
			if want := map[int]float64{3: 3, 4: 2}[e.Epoch]; e.Seconds != want || e.Epoch == 3 && e.Metrics["accuracy"] != 0.5 {
				t.Errorf("epoch %+v, want %g s", e, want)
			}
		}
	}
	if diff := cmp.Diff([]int{3, 4}, reported); diff != "" {
		t.Error(diff)
	}
}

func FuzzLines(f *testing.F) {
	f.Add(logLine)
	f.Add("2020-03-31 16:08:01 INFO  D - [Epoch 1 8/8][Iteration 1][Wall Clock 3s] Epoch finished. Wall clock time is 1e300 ms")
	f.Fuzz(func(t *testing.T, text string) {
		_, epochs := follow(text)
		for _, e := range epochs {
			if e.Epoch < 0 || math.IsNaN(e.Seconds) || e.Loss != nil && math.IsNaN(*e.Loss) {
				t.Fatalf("epoch %+v", e)
			}
		}
	})
}
