package meter

import (
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// runKey identifies one attempt's supervisor: numbers of attempts and of processes are reused, the pair with the
// start time is not.
type runKey struct {
	job     train.JobID
	attempt int
	pid     int
	start   uint64
}

func runOf(a train.Attempt) runKey { return runKey{a.Job, a.Number, a.PID, a.PIDStart} }

// cpuTimes follows the processor time of attempts.
//
// The time of a supervisor and all its live descendants, plus the time of children that each of them has waited for,
// only grows: a child that ends moves from the first part to the second. The supervisor adopts orphans, so none
// leaves the tree. The processes of a container descend from its engine instead and are found by the mark in their
// environment.
type cpuTimes struct {
	// since is the time since boot from which everything was measured: a supervisor that began later counts from its
	// beginning.
	since  uint64
	bootID string
	total  map[runKey]proc.Ticks
	// owner maps process numbers to attempts at the last reading; former at the one before.
	owner, former map[int]owned
	groups        groups
	// byGroup says for which attempts total holds the time of their group.
	byGroup map[runKey]bool
}

// used returns the processor time that each attempt used since the last call. marks are the marks of processes
// outside of any supervisor's tree.
func (w *cpuTimes) used(all map[int]proc.Stat, attempts []train.Attempt, marks map[int]string) map[runKey]proc.Ticks {
	used, total, owner := map[runKey]proc.Ticks{}, map[runKey]proc.Ticks{}, map[int]owned{}
	byGroup, forest, byMark := map[runKey]bool{}, proc.NewForest(all), map[string][]int{}
	for pid, mark := range marks {
		mark = train.Hash(mark)
		byMark[mark] = append(byMark[mark], pid)
	}
	for _, a := range attempts {
		tree, marked := w.tree(forest, a, byMark[a.Marks()])
		if tree == nil {
			continue
		}
		r, old := runOf(a), proc.Ticks(0)
		for pid, s := range tree {
			if s.Start < w.since {
				old += s.Own + s.Reaped
			}
			owner[pid] = owned{r, s.Start}
		}
		sum := timeOf(tree, nil)
		before, known := w.total[r]
		if !known && a.PIDStart < w.since {
			before = old // an earlier agent has measured that
		}
		group, found := w.groups.of(r, tree, marked)
		exact := timeOf(tree, group.inside) + group.used
		if found && w.byGroup[r] {
			sum = exact
		}
		// Children of a process that ignores their end take their time with them.
		used[r] = max(sum-before, 0)
		if total[r], byGroup[r] = sum, found; found {
			total[r] = exact // from here on the group counts
		}
	}
	w.byGroup = byGroup
	w.groups.keep(total)
	w.total, w.owner, w.former = total, owner, w.owner
	return used
}

// timeOf returns the time of processes without those that a group accounts for.
func timeOf(tree map[int]proc.Stat, inGroup []int) proc.Ticks {
	sum := proc.Ticks(0)
	for pid, s := range tree {
		if !slices.Contains(inGroup, pid) {
			sum += s.Own + s.Reaped
		}
	}
	return sum
}

// tree returns the processes of an attempt: its supervisor and all its descendants, and what carries its mark. In
// pods there is no supervisor, only the mark. outside are the processes found only by their mark.
func (w *cpuTimes) tree(forest proc.Forest, a train.Attempt, marked []int) (tree map[int]proc.Stat, outside []int) {
	tree = map[int]proc.Stat{}
	if a.PID > 0 {
		if a.BootID != "" && a.BootID != w.bootID {
			return nil, nil
		}
		if tree = forest.Tree(a.PID, a.PIDStart); tree == nil {
			return nil, nil
		}
	} else if a.Phase != train.PhaseRunning {
		return nil, nil // its supervisor has not written its process number yet
	}
	for _, pid := range marked {
		if _, inside := tree[pid]; !inside {
			maps.Copy(tree, forest.Tree(pid, forest.All[pid].Start))
			outside = append(outside, pid)
		}
	}
	if len(tree) == 0 {
		return nil, nil
	}
	return tree, outside
}

// markReader remembers the marks of processes: an environment is read only a few times.
type markReader struct {
	known map[int]markSeen
}

type markSeen struct {
	start uint64
	name  string
	mark  string
	looks int
}

// looks is how often a program is looked at: a young process may be about to become the job's program, and what makes
// a container may take its time for that.
const looks = 3

// read returns the marks of the processes that have one. Kernel threads and the scheduler's own processes have none.
func (r *markReader) read(root proc.Root, all map[int]proc.Stat) map[int]string {
	known, marks := map[int]markSeen{}, map[int]string{}
	for pid, s := range all {
		m, seen := r.known[pid]
		if !seen || m.start != s.Start || m.mark == "" && m.name != s.Name {
			m = markSeen{start: s.Start, name: s.Name}
		}
		if m.mark == "" && m.looks < looks {
			m.mark = root.Variable(pid, train.MarkVariable)
			m.looks++
		}
		known[pid] = m
		if m.mark != "" {
			marks[pid] = m.mark
		}
	}
	r.known = known
	return marks
}
