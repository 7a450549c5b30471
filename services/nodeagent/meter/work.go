package meter

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/proc"
)

// run names one attempt's supervisor: numbers of attempts and of processes are used again, the pair with the start is not.
type run struct {
	job     train.JobID
	attempt int
	pid     int
	start   uint64
}

func runOf(a train.Attempt) run { return run{a.Job, a.Number, a.PID, a.PIDStart} }

// workers follows the processor time of attempts.
//
// The time of a supervisor and all its live descendants, plus the time of children that each of them has waited for, only grows: a child that
// ends moves from the first part to the second. The supervisor adopts orphans, so none leaves the tree.
type workers struct {
	// since is the time since boot from which on everything was measured: a supervisor that began later counts from its beginning.
	since  uint64
	bootID string
	total  map[run]proc.Ticks
	// owner tells whose process a number is, as of the last reading.
	owner map[int]run
}

// used gives the processor time that each attempt used since the last call.
func (w *workers) used(all map[int]proc.Stat, attempts []train.Attempt) map[run]proc.Ticks {
	used, total, owner := map[run]proc.Ticks{}, map[run]proc.Ticks{}, map[int]run{}
	for _, a := range attempts {
		if a.PID <= 0 || a.BootID != "" && a.BootID != w.bootID {
			continue
		}
		tree := proc.Tree(all, a.PID, a.PIDStart)
		if tree == nil {
			continue
		}
		r, sum := runOf(a), proc.Ticks(0)
		for pid, s := range tree {
			sum += s.Own + s.Reaped
			owner[pid] = r
		}
		before, known := w.total[r]
		if !known && a.PIDStart < w.since {
			before = sum // an agent before this one has measured that
		}
		// Children of a process that refuses to hear of their end take their time with them.
		used[r] = max(sum-before, 0)
		total[r] = sum
	}
	w.total, w.owner = total, owner
	return used
}
