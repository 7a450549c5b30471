package traces

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/lab/baselines"
	"github.com/switchyard-dl/switchyard/lab/rows"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// data is the folder of published traces; tests are skipped where it is absent.
func data(t testing.TB) string {
	t.Helper()
	root := os.Getenv("SWITCHYARD_DATA")
	if root == "" {
		t.Skip("SWITCHYARD_DATA does not name the folder of published traces")
	}
	dir := filepath.Join(root, "pollux")
	if _, err := os.Stat(filepath.Join(dir, "traces")); err != nil {
		t.Skipf("no published traces: %v", err)
	}
	return dir
}

func applications(t testing.TB) map[string]*Application {
	t.Helper()
	apps, err := Load(os.DirFS(data(t)), "traces", "derived")
	if err != nil {
		t.Fatal(err)
	}
	return apps
}

func workload(t testing.TB, dir string, number int) Workload {
	t.Helper()
	name := fmt.Sprintf("workload-%d", number)
	content, err := os.ReadFile(filepath.Join(data(t), dir, name+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := ParseWorkload(name, content)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// published are the completion times in the published results, by job.
func published(t testing.TB, policy, dir, workload string) map[string]float64 {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(data(t), "reference-results", "jcts-jobload.csv"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := rows.Parse("jcts-jobload", content, "policy", "workload_dir", "workload", "job", "jct_s")
	if err != nil {
		t.Fatal(err)
	}
	jcts := map[string]float64{}
	for _, row := range all {
		if row.Text("policy") != policy || row.Text("workload_dir") != dir || row.Text("workload") != workload {
			continue
		}
		x, err := row.Numbers("jct_s")
		if err != nil {
			t.Fatal(err)
		}
		jcts[row.Text("job")] = x[0]
	}
	if len(jcts) == 0 {
		t.Fatalf("no published results of %s on %s/%s", policy, dir, workload)
	}
	return jcts
}

// paperCluster is the cluster of the published simulations.
func paperCluster() []sim.Pool { return []sim.Pool{{Nodes: 16, Devices: 4}} }

func replay(t testing.TB, apps map[string]*Application, w Workload, policy plan.Policy) sim.Result {
	t.Helper()
	r, err := Run(Config{Applications: apps, Workload: w, Pools: paperCluster(), Policy: policy, Rules: UntypedRules(), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPublishedAverages compares Pollux, whose search is random and takes its time, by the average of each workload:
// two of half the load, and with SWITCHYARD_LONG_TESTS set all of half the load and of the whole.
func TestPublishedAverages(t *testing.T) {
	apps := applications(t)
	for _, dir := range []string{"workloads-0.5", "workloads"} {
		for number := 1; number <= 4; number++ {
			long := dir == "workloads" || number%2 == 0 // 2 and 4 are searched three times as long as 1 and 3
			if long && os.Getenv("SWITCHYARD_LONG_TESTS") == "" || testing.Short() && number > 1 {
				continue
			}
			w := workload(t, dir, number)
			t.Run(fmt.Sprintf("%s/%s", dir, w.Name), func(t *testing.T) {
				t.Parallel()
				want := 0.0
				for _, jct := range published(t, "pollux", dir, w.Name) {
					want += jct / float64(len(w.Jobs))
				}
				got := replay(t, apps, w, baselines.Pollux{}).AvgJCTSeconds
				t.Logf("average %.0f s, published %.0f s: %.3f", got, want, got/want)
				if math.Abs(got/want-1) > 0.05 {
					t.Errorf("average completion time %.0f s, published %.0f s", got, want)
				}
			})
		}
	}
}

// TestPublishedCompletionTimes replays workloads of the published evaluation and compares every single job: two of each
// load, and with SWITCHYARD_LONG_TESTS set all four.
func TestPublishedCompletionTimes(t *testing.T) {
	apps := applications(t)
	workloads := 2
	if os.Getenv("SWITCHYARD_LONG_TESTS") != "" {
		workloads = 4
	}
	for _, policy := range []plan.Policy{baselines.Tiresias{}, baselines.Optimus{}} {
		for _, dir := range []string{"workloads", "workloads-0.5"} {
			for number := 1; number <= workloads; number++ {
				w := workload(t, dir, number)
				t.Run(fmt.Sprintf("%s/%s/%s", policy.Name(), dir, w.Name), func(t *testing.T) {
					want := published(t, policy.Name(), dir, w.Name)
					got := replay(t, apps, w, policy)
					if got.Completed != len(w.Jobs) || len(want) != len(w.Jobs) {
						t.Fatalf("%d of %d jobs completed, %d published", got.Completed, len(w.Jobs), len(want))
					}
					off := 0
					for job, jct := range want {
						if d := math.Abs(got.JCTs[job] - jct); d > 0 {
							t.Logf("%s: %.0f s, published %.0f s", job, got.JCTs[job], jct)
							off++
						}
					}
					if off > 0 {
						t.Errorf("%d of %d jobs differ from what was published", off, len(want))
					}
				})
			}
		}
	}
}

// BenchmarkWorkload is a whole simulation of 160 jobs, with the processor time of it and of one minute of it, in
// which there is one decision; Pollux's takes minutes.
func BenchmarkWorkload(b *testing.B) {
	apps := applications(b)
	w := workload(b, "workloads", 1)
	for _, name := range baselines.Names() {
		b.Run(name, func(b *testing.B) {
			policy, err := baselines.Find(name)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			before, minutes := processorSeconds(b), 0.0
			for b.Loop() {
				minutes += replay(b, apps, w, policy).MakespanSeconds / 60
			}
			used := processorSeconds(b) - before
			b.ReportMetric(used/float64(b.N), "cpu-s/op")
			b.ReportMetric(1e3*used/minutes, "cpu-ms/minute")
		})
	}
}

// processorSeconds is what this process has used so far, the collection of garbage included.
func processorSeconds(b *testing.B) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
