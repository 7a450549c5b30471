package local

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// allowed returns the processors that this process may use.
func allowed(t *testing.T) []int {
	t.Helper()
	cpus, err := proc.Processors()
	if err != nil {
		t.Fatal(err)
	}
	return cpus
}

// The processes of an attempt and their children are given fewer of their processors, and then all of them again.
func TestRunningProcessesAreKeptOnCores(t *testing.T) {
	cpus := allowed(t)
	if len(cpus) < 2 {
		t.Skip("one processor")
	}
	b := newBench(t)
	l := b.launch("j", sh("sleep 1000 & echo $$ > pid; wait"))
	l.Processes[0].CPUs, l.Processes[0].Cores = cpus[:2], 1
	b.start(l)
	s := b.phase("j", launch.Running)
	pid := b.pidIn("pid")
	var tree []int
	b.until("both processes", func() bool {
		var err error
		tree, err = attempt.Descendants(s.PID)
		b.must(err)
		return len(tree) == 2
	})
	have := func(want int) {
		t.Helper()
		for _, p := range tree {
			var set unix.CPUSet
			b.must(unix.SchedGetaffinity(p, &set))
			if set.Count() != want || !set.IsSet(cpus[0]) {
				t.Errorf("process %d (the program is %d) has %d processors, want %d", p, pid, set.Count(), want)
			}
		}
	}
	have(1)
	for _, cores := range []float64{2, 1} {
		a := train.Attempt{Job: "j", Number: 1, Setting: train.Setting{Values: map[string]float64{"memory_mib": 256}}}
		applied, err := b.Retune(t.Context(), a, s, train.Setting{Values: map[string]float64{"cores": cores, "memory_mib": 512}})
		if err != nil || applied.Values["cores"] != cores || !slices.Equal(applied.Restarts, []string{"memory_mib"}) || len(applied.Values) != 1 || len(applied.Refused) != 0 {
			t.Fatalf("applied %+v, error %v", applied, err)
		}
		have(int(cores))
	}
	applied, err := b.Retune(t.Context(), train.Attempt{Job: "j", Number: 1}, s, train.Setting{Values: map[string]float64{"cores": 3}})
	if err != nil || applied.Refused["cores"] == "" {
		t.Errorf("applied %+v, error %v: it has two", applied, err)
	}
	// It gets all it was started on, the nearest possible number.
	have(2)
}

// In a job with a process for each device, each process keeps to its own processors.
func TestEachRankIsKeptOnItsProcessors(t *testing.T) {
	cpus := allowed(t)
	if len(cpus) < 2 {
		t.Skip("one processor")
	}
	b := newBench(t)
	l := b.launch("j", sh("echo $$ > pid$RANK; sleep 1000"), sh("echo $$ > pid$RANK; sleep 1000"))
	for i := range l.Processes {
		l.Processes[i].Env = append(l.Processes[i].Env, fmt.Sprintf("%s=%d", launch.Rank, i))
	}
	l.Processes[0].CPUs, l.Processes[1].CPUs = []int{cpus[0], cpus[1]}, []int{cpus[1], cpus[0]}
	b.start(l)
	s := b.phase("j", launch.Running)
	pids := []int{b.pidIn("pid0"), b.pidIn("pid1")}
	if _, err := b.Retune(t.Context(), train.Attempt{Job: "j", Number: 1}, s, train.Setting{Values: map[string]float64{"cores": 1}}); err != nil {
		t.Fatal(err)
	}
	for i, pid := range pids {
		var set unix.CPUSet
		b.must(unix.SchedGetaffinity(pid, &set))
		if set.Count() != 1 || !set.IsSet(cpus[i]) {
			t.Errorf("rank %d has %d processors, want processor %d alone", i, set.Count(), cpus[i])
		}
	}
}
