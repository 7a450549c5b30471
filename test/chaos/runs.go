package chaos

import (
	"fmt"
	"strings"
)

// process is one process of an attempt.
type process struct {
	job     string
	attempt int
	rank    int
}

func of(e Entry) process { return process{e.Job, e.Attempt, e.Rank} }

// runs is what the ledger says about the processes of jobs.
type runs struct {
	// starts counts the starts of each process, live are those without an end, kills counts the killed ones of each job.
	starts map[process]int
	live   map[process]Entry
	kills  map[string]int
	// terminated has the attempts of each job that got SIGTERM from outside, saved the epochs that each process did.
	terminated map[string][]process
	saved      map[process]int
	// done counts how often rank 0 of a job did each epoch, attempts has the highest attempt that a job began.
	done     map[string]map[int]int
	attempts map[string]int
	found    []Violation
}

// judgeRuns folds the lines of trainers in the order of their times. It finds processes of an attempt that were started
// twice, two attempts of a job at once, and devices that two jobs held at once.
func judgeRuns(entries []Entry) *runs {
	r := &runs{
		starts: map[process]int{}, live: map[process]Entry{}, kills: map[string]int{}, terminated: map[string][]process{}, saved: map[process]int{},
		done: map[string]map[int]int{}, attempts: map[string]int{},
	}
	for _, e := range entries {
		switch e.Event {
		case Start:
			r.start(e)
		case Epoch:
			r.saved[of(e)]++
			if e.Rank == 0 {
				if r.done[e.Job] == nil {
					r.done[e.Job] = map[int]int{}
				}
				r.done[e.Job][e.Epoch]++
			}
		case Exit:
			delete(r.live, of(e))
		case Killed:
			delete(r.live, of(e))
			r.kills[e.Job]++
		case Terminated:
			r.kills[e.Job]++
			r.terminated[e.Job] = append(r.terminated[e.Job], of(e))
		}
	}
	for p, e := range r.live {
		r.breaks("I8", "job %s attempt %d (pid %d) never wrote its exit, and nobody killed it", p.job, p.attempt, e.PID)
	}
	return r
}

func (r *runs) breaks(invariant, format string, args ...any) {
	r.found = append(r.found, Violation{invariant, fmt.Sprintf(format, args...)})
}

func (r *runs) start(e Entry) {
	p := of(e)
	if r.starts[p]++; r.starts[p] > 1 {
		r.breaks("I2", "job %s attempt %d rank %d was started %d times", p.job, p.attempt, p.rank, r.starts[p])
	}
	for other, begun := range r.live {
		if other.job == p.job && other.attempt != p.attempt {
			r.breaks("I2", "job %s: attempt %d started while attempt %d was running", p.job, p.attempt, other.attempt)
		}
		if other.job != p.job && overlap(begun.Devices, e.Devices) {
			r.breaks("I3", "jobs %s and %s both held a device of %q and %q", other.job, p.job, begun.Devices, e.Devices)
		}
	}
	r.live[p] = e
	r.attempts[p.job] = max(r.attempts[p.job], p.attempt)
}

// epochs says which epochs a job that has succeeded did not do, or did again for nothing. A killed process may have
// done one that is in no line yet, and repeats at most one.
func (r *runs) epochs(job string, want int) {
	missing, repeats := 0, 0
	for n := 1; n <= want; n++ {
		if times := r.done[job][n]; times == 0 {
			missing++
		} else {
			repeats += times - 1
		}
	}
	if missing > r.kills[job] {
		r.breaks("I1", "job %s never did %d of its %d epochs", job, missing, want)
	}
	if repeats > r.kills[job] {
		r.breaks("I2", "job %s did %d epochs again although %d of its processes were killed", job, repeats, r.kills[job])
	}
}

// mayFail says whether the retry policy lets a job fail after SIGTERM from outside, which is an end by the program's
// own status: it is started again once, if its attempt had saved a checkpoint. The first epoch may not be saved yet.
func (r *runs) mayFail(job string) bool {
	ends := r.terminated[job]
	return len(ends) > 1 || len(ends) == 1 && r.saved[ends[0]] < 2
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

// Processes judges the processes of jobs that have all succeeded, by the ledger alone.
func Processes(entries []Entry) []Violation {
	r := judgeRuns(entries)
	for _, e := range entries {
		if e.Event == Submitted {
			r.epochs(e.Job, e.Epochs)
		}
	}
	return r.found
}
