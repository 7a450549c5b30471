package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/checkpoint"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/dataset"
)

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// smallNet keeps a test's epoch at a few milliseconds.
func smallNet(more ...string) []string {
	return append([]string{"-hidden", "12", "-features", "9", "-training-set-size", "210", "-batch-size", "16"}, more...)
}

// runJob trains with the given numbers of processes and of workers in each, all inside this process, up to the given
// epoch. Snapshots lie in dir.
func runJob(t *testing.T, dir string, processes, workers, epochs int, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, complaints bytes.Buffer
	port := freePort(t)
	errs := make([]error, processes)
	var all sync.WaitGroup
	for rank := range processes {
		s, err := readSettings(append(smallNet("-epochs", strconv.Itoa(epochs)), args...), lookup(map[string]string{
			"JOB_UUID": "job", "SWITCHYARD_SNAPSHOTS_DIR": dir, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
			"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(processes), "NUM_GPUS": strconv.Itoa(processes * workers),
		}), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			o, e := io.Writer(io.Discard), io.Writer(io.Discard)
			if rank == 0 {
				o, e = &out, &complaints
			}
			errs[rank] = train(context.Background(), s, newLedger(s.ledger, rank, e), o, e)
		})
	}
	all.Wait()
	return out.String(), complaints.String(), errors.Join(errs...)
}

func mustRun(t *testing.T, dir string, processes, workers, epochs int, args ...string) {
	t.Helper()
	if _, _, err := runJob(t, dir, processes, workers, epochs, args...); err != nil {
		t.Fatal(err)
	}
}

func snapshot(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "job", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The whole checkpoint is compared: weights, momentum, permutations, counts.
func TestResumeIsBitExact(t *testing.T) {
	for name, layout := range map[string][2]int{
		"one worker": {1, 1}, "three workers in one process": {1, 3}, "three processes": {3, 1}, "two processes of two": {2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			straight, pieces := t.TempDir(), t.TempDir()
			mustRun(t, straight, layout[0], layout[1], 5)
			for _, until := range []int{1, 3, 3, 5} {
				mustRun(t, pieces, layout[0], layout[1], until)
			}
			if !bytes.Equal(snapshot(t, straight, checkpoint.CurrentName), snapshot(t, pieces, checkpoint.CurrentName)) {
				t.Error("stopped and resumed, the training ends elsewhere than in one go")
			}
		})
	}
}

func TestWorkersInOneProcessEqualProcesses(t *testing.T) {
	for _, workers := range []int{2, 3, 5} {
		inside, apart := t.TempDir(), t.TempDir()
		mustRun(t, inside, 1, workers, 2)
		mustRun(t, apart, workers, 1, 2)
		if !bytes.Equal(snapshot(t, inside, checkpoint.CurrentName), snapshot(t, apart, checkpoint.CurrentName)) {
			t.Errorf("%d workers in one process and in %d processes differ", workers, workers)
		}
	}
}

// With batches scaled down as workers are added, each step uses the same samples, so
// that only rounding may differ.
func TestMoreWorkersComputeTheSameGradient(t *testing.T) {
	one, four := t.TempDir(), t.TempDir()
	mustRun(t, one, 1, 1, 3, "-batch-size", "16", "-scale-lr=false")
	mustRun(t, four, 2, 2, 3, "-batch-size", "4", "-scale-lr=false")
	a, errA := checkpoint.Decode(snapshot(t, one, checkpoint.CurrentName))
	b, errB := checkpoint.Decode(snapshot(t, four, checkpoint.CurrentName))
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if a.Steps != b.Steps {
		t.Fatalf("%d steps and %d", a.Steps, b.Steps)
	}
	for i := range a.Weights {
		if d := a.Weights[i] - b.Weights[i]; d > 1e-9 || d < -1e-9 {
			t.Fatalf("weight %d: %g and %g", i, a.Weights[i], b.Weights[i])
		}
	}
}

// TestAFixedGlobalBatchTrainsTheSame: with one global batch, jobs of 1 to 4 devices end with the same weights up to the
// order of float sums, even if passes do not divide it, and if the job is rescaled on the way.
func TestAFixedGlobalBatchTrainsTheSame(t *testing.T) {
	weights := func(layouts ...[2]int) []float64 {
		dir := t.TempDir()
		for i, l := range layouts {
			mustRun(t, dir, l[0], l[1], 6*(i+1)/len(layouts), "-global-batch", "32", "-batch-size", "13")
		}
		state, err := checkpoint.Decode(snapshot(t, dir, checkpoint.CurrentName))
		if err != nil {
			t.Fatal(err)
		}
		if state.Epochs != 6 || state.Steps != 6*7 { // 210 samples in steps of 32
			t.Errorf("%v: %d epochs and %d steps", layouts, state.Epochs, state.Steps)
		}
		return state.Weights
	}
	one := weights([2]int{1, 1})
	for _, layouts := range [][][2]int{{{1, 2}}, {{2, 1}}, {{3, 1}}, {{2, 2}}, {{1, 1}, {2, 2}, {1, 3}}} {
		most := 0.0
		for i, w := range weights(layouts...) {
			most = max(most, math.Abs(w-one[i]))
		}
		if most > 1e-9 {
			t.Errorf("processes and workers %v: a weight is %g apart", layouts, most)
		}
	}
}

func TestRescalingGoesOnFromTheSameWeights(t *testing.T) {
	dir := t.TempDir()
	mustRun(t, dir, 1, 1, 2)
	before := snapshot(t, dir, checkpoint.CurrentName)
	out, _, err := runJob(t, dir, 3, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out, "epoch 3/3 ") || strings.Count(out, "\n") != 1 || !strings.Contains(out, "workers 3") {
		t.Errorf("output %q, want the third epoch alone", out)
	}
	if !bytes.Equal(before, snapshot(t, dir, checkpoint.PreviousName)) {
		t.Error("the checkpoint before is not the one that the training went on from")
	}
	after, err := checkpoint.Decode(snapshot(t, dir, checkpoint.CurrentName))
	if err != nil {
		t.Fatal(err)
	}
	// 210 samples in batches of 16: 14 steps with one worker, 5 with three.
	if after.Epochs != 3 || after.Steps != 2*14+5 {
		t.Errorf("%d epochs and %d steps, want 3 and 33", after.Epochs, after.Steps)
	}
}

func TestCorruptCheckpointIsPassedOver(t *testing.T) {
	straight, dir := t.TempDir(), t.TempDir()
	mustRun(t, straight, 1, 2, 4)
	mustRun(t, dir, 1, 2, 3)
	data := snapshot(t, dir, checkpoint.CurrentName)
	if err := os.WriteFile(filepath.Join(dir, "job", checkpoint.CurrentName), data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	_, complaints, err := runJob(t, dir, 1, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(complaints, "truncated or altered") || !strings.Contains(complaints, "going back to the previous one, of epoch 2") {
		t.Errorf("complaints %q", complaints)
	}
	if !bytes.Equal(snapshot(t, straight, checkpoint.CurrentName), snapshot(t, dir, checkpoint.CurrentName)) {
		t.Error("from the previous checkpoint the training ends elsewhere")
	}
}

func TestAnotherNetworksCheckpointIsRefused(t *testing.T) {
	dir := t.TempDir()
	mustRun(t, dir, 1, 1, 1)
	for _, args := range [][]string{{"-hidden", "13"}, {"-seed", "2"}} {
		if _, _, err := runJob(t, dir, 1, 1, 2, args...); err == nil || !strings.Contains(err.Error(), "the checkpoint is of network") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestTrainingLearns(t *testing.T) {
	dir := t.TempDir()
	out, _, err := runJob(t, dir, 1, 2, 10, "-lr", "0.03", "-training-set-size", "2000", "-features", "48", "-hidden", "32")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	first, last := lossAndAccuracy(t, lines[0]), lossAndAccuracy(t, lines[len(lines)-1])
	if last[0] > 0.75*first[0] || last[1] < first[1]+0.15 {
		t.Errorf("loss and accuracy %v after the first epoch, %v after the last", first, last)
	}
}

func lossAndAccuracy(t *testing.T, line string) [2]float64 {
	t.Helper()
	fields := strings.Fields(line) // epoch 1/10 loss x accuracy y ...
	loss, errLoss := strconv.ParseFloat(fields[3], 64)
	accuracy, errAccuracy := strconv.ParseFloat(fields[5], 64)
	if err := errors.Join(errLoss, errAccuracy); err != nil {
		t.Fatal(err)
	}
	return [2]float64{loss, accuracy}
}

func TestDivergenceIsAnError(t *testing.T) {
	if _, _, err := runJob(t, t.TempDir(), 1, 1, 5, "-lr", "1e308", "-momentum", "1"); err == nil || !strings.Contains(err.Error(), "too high") {
		t.Errorf("%v, want a complaint about the learning rate", err)
	}
}

func TestGradientStatisticsAgreeWithTheirDefinition(t *testing.T) {
	// Three samples' gradients in two dimensions: (1,0), (3,2), (2,4).
	sum := []float64{6, 6}
	tail := make([]float64, tailLength)
	tail[tailSamples], tail[tailSquaredNorms] = 3, 1+13+20
	got := newTally(sum, tail, 0, 0)
	// Sample covariance: variances 1 and 4; |mean|^2 = 8.
	if math.Abs(got.gradVar-5) > 1e-12 || math.Abs(got.gradSqr-(8-5.0/3)) > 1e-12 {
		t.Errorf("variance %g and square %g, want 5 and %g", got.gradVar, got.gradSqr, 8-5.0/3)
	}
}

// A step over twice the batch moves as far as a submitted step of that size with twice the learning rate.
func TestALargerStepScalesTheLearningRate(t *testing.T) {
	after := func(batch int, args ...string) []float64 {
		s, err := readSettings(smallNet(args...),
			lookup(map[string]string{"JOB_UUID": "job", "SWITCHYARD_SNAPSHOTS_DIR": t.TempDir()}), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		one := &trainer{settings: s, rng: rand.NewPCG(s.seed, 1)}
		if err := one.load(io.Discard); err != nil {
			t.Fatal(err)
		}
		if one.exchange, err = one.meet(t.Context()); err != nil {
			t.Fatal(err)
		}
		one.team = newTeam(s, one.exchange)
		order := rand.New(rand.NewPCG(1, 2)).Perm(s.samples)
		if _, err := one.step(dataset.Schedule{Samples: s.samples, Workers: 1}, order, 0, batch, batch); err != nil {
			t.Fatal(err)
		}
		return one.state.Weights
	}
	if !slices.Equal(after(32, "-batch-size", "16", "-lr", "0.01"), after(32, "-batch-size", "32", "-lr", "0.02")) {
		t.Error("a larger step than submitted ends elsewhere than one that was submitted so")
	}
}
