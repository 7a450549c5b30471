// Package system runs the real processes as their users do. It proves that nothing is lost and nothing runs twice: it
// kills them in the middle of the work, and judges by a ledger that the trainers write themselves, apart from the bus.
package system

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// entry is one line of the trainers' ledger.
type entry struct {
	Event   string  `json:"event"`
	Job     string  `json:"job"`
	Attempt int     `json:"attempt"`
	PID     int     `json:"pid"`
	Rank    int     `json:"rank"`
	Epoch   int     `json:"epoch"`
	Step    int     `json:"step"`
	Devices string  `json:"devices"`
	Seconds float64 `json:"unix_seconds"`
}

// readLedger returns no entries before the first trainer has started.
func readLedger(t *testing.T, path string) []entry {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var entries []entry
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("ledger line %q: %v", lines.Text(), err)
		}
		entries = append(entries, e)
	}
	return entries
}

// judge lists every violation: a process of an attempt started twice (I2), two attempts of a job at once (I2), a device
// held by two jobs at once (I3), an epoch done twice without a process having been killed, a job that did not do all
// its epochs. The processes in killed wrote no exit; they count as ended at their last line.
func judge(entries []entry, epochs map[string]int, killed map[int]bool) []string {
	var faults []string
	type process struct {
		job     string
		attempt int
		rank    int
	}
	starts := map[process]int{}
	live := map[int]entry{} // by PID
	done := map[string]map[int]int{}
	last := map[int]entry{}
	for _, e := range entries {
		last[e.PID] = e
	}
	for _, e := range entries {
		switch e.Event {
		case "start":
			p := process{e.Job, e.Attempt, e.Rank}
			if starts[p]++; starts[p] > 1 {
				faults = append(faults,
					fmt.Sprintf("job %s attempt %d rank %d was started %d times", e.Job, e.Attempt, e.Rank, starts[p]))
			}
			for pid, other := range live {
				if killed[pid] && last[pid].Seconds <= e.Seconds {
					delete(live, pid)
					continue
				}
				if other.Job == e.Job && other.Attempt != e.Attempt {
					faults = append(faults,
						fmt.Sprintf("job %s: attempt %d started while attempt %d was running", e.Job, e.Attempt, other.Attempt))
				}
				if other.Job != e.Job && overlap(other.Devices, e.Devices) {
					faults = append(faults,
						fmt.Sprintf("jobs %s and %s both held a device of %q and %q", other.Job, e.Job, other.Devices, e.Devices))
				}
			}
			live[e.PID] = e
		case "epoch":
			if e.Rank == 0 {
				if done[e.Job] == nil {
					done[e.Job] = map[int]int{}
				}
				done[e.Job][e.Epoch]++
			}
		case "exit":
			delete(live, e.PID)
		}
	}
	for pid, e := range live {
		if !killed[pid] {
			faults = append(faults, fmt.Sprintf("job %s attempt %d (pid %d) never wrote its exit", e.Job, e.Attempt, pid))
		}
	}
	for job, want := range epochs {
		repeats := 0
		for n := 1; n <= want; n++ {
			switch done[job][n] {
			case 0:
				faults = append(faults, fmt.Sprintf("job %s never did epoch %d", job, n))
			case 1:
			default:
				repeats += done[job][n] - 1
			}
		}
		if repeats > len(killed) {
			faults = append(faults,
				fmt.Sprintf("job %s did %d epochs again although %d processes were killed", job, repeats, len(killed)))
		}
	}
	return faults
}

func overlap(a, b string) bool {
	for x := range strings.SplitSeq(a, ",") {
		for y := range strings.SplitSeq(b, ",") {
			if x != "" && x == y {
				return true
			}
		}
	}
	return false
}

func TestTheJudgeSeesWhatIsWrong(t *testing.T) {
	run := func(job string, attempt, pid int, devices string, from, to float64, epochs ...int) []entry {
		base := entry{Job: job, Attempt: attempt, PID: pid, Devices: devices}
		start, exit := base, base
		start.Event, start.Seconds, exit.Event, exit.Seconds = "start", from, "exit", to
		entries := []entry{start}
		for _, n := range epochs {
			e := base
			e.Event, e.Epoch, e.Seconds = "epoch", n, from
			entries = append(entries, e)
		}
		return append(entries, exit)
	}
	good := append(run("a", 1, 10, "cpu:0", 0, 1, 1), run("a", 2, 11, "cpu:0", 2, 3, 2)...)
	open := func(entries []entry) []entry { return entries[:len(entries)-1] }
	tests := []struct {
		name    string
		entries []entry
		epochs  map[string]int
		killed  map[int]bool
		want    string
	}{
		{"all is well", good, map[string]int{"a": 2}, nil, ""},
		{"an epoch is missing", good, map[string]int{"a": 3}, nil, "never did epoch 3"},
		{"started twice", append(run("a", 1, 10, "cpu:0", 0, 1, 1), run("a", 1, 11, "cpu:0", 2, 3, 2)...), map[string]int{"a": 2}, nil, "started 2 times"},
		{"two attempts at once", append(open(run("a", 1, 10, "cpu:0", 0, 1, 1)), run("a", 2, 11, "cpu:1", 0, 3, 2)...), map[string]int{"a": 2}, nil, "while attempt 1 was running"},
		{"a device given twice", append(open(run("a", 1, 10, "cpu:0,cpu:1", 0, 1, 1)), run("b", 1, 11, "cpu:1", 0, 3)...), map[string]int{"a": 1}, nil, "both held a device"},
		{"an epoch for nothing", append(run("a", 1, 10, "cpu:0", 0, 1, 1), run("a", 2, 11, "cpu:0", 2, 3, 1, 2)...), map[string]int{"a": 2}, nil, "did 1 epochs again"},
		{"an epoch again after a kill", append(open(run("a", 1, 10, "cpu:0", 0, 1, 1)), run("a", 2, 11, "cpu:0", 2, 3, 1, 2)...), map[string]int{"a": 2}, map[int]bool{10: true}, ""},
		{"no exit", open(run("a", 1, 10, "cpu:0", 0, 1, 1)), map[string]int{"a": 1}, nil, "never wrote its exit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			faults := strings.Join(judge(tt.entries, tt.epochs, tt.killed), "; ")
			if tt.want == "" && faults != "" || !strings.Contains(faults, tt.want) {
				t.Fatalf("faults %q, want %q", faults, tt.want)
			}
		})
	}
}
