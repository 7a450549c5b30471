package meter

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/proc"
)

// groups finds control groups that hold processes of one attempt and nothing else, as a container's does. Their time is exact: it keeps that of processes
// that came and went between two readings.
type groups struct {
	proc  proc.Root
	mount string // where groups are mounted; empty for no looking
	known map[run]grouped
}

// grouped is the group of an attempt, once one was found.
type grouped struct {
	group proc.Group
	// used is the time as it was read last: a group that is gone stays at that.
	used proc.Ticks
	// inside are the processes whose time is the group's.
	inside []int
}

// of gives the group of an attempt whose processes are given; ok is false while it has none of its own. A marked process tells which group to look at.
func (g *groups) of(r run, tree map[int]proc.Stat, marked []int) (grouped, bool) {
	found, adopted := g.known[r]
	if !adopted {
		if g.mount == "" || len(marked) == 0 {
			return grouped{}, false
		}
		group, there := g.proc.Group(slices.Min(marked), g.mount)
		if !there {
			return grouped{}, false
		}
		found.group = group
	}
	members, err := found.group.Members()
	strange := func(pid int) bool { _, ours := tree[pid]; return !ours }
	if !adopted && (err != nil || len(members) == 0 || slices.ContainsFunc(members, strange)) {
		return grouped{}, false
	}
	if used, err := found.group.Used(); err == nil {
		found.used = max(found.used, used)
	}
	found.inside = members
	g.known[r] = found
	return found, true
}

// keep forgets the groups of attempts that are gone.
func (g *groups) keep(live map[run]proc.Ticks) {
	for r := range g.known {
		if _, lives := live[r]; !lives {
			delete(g.known, r)
		}
	}
}
