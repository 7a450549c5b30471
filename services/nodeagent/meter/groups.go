package meter

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/proc"
)

// groups finds control groups that hold processes of one attempt and nothing else, such as a container's. Their time
// is exact: it includes processes that came and went between two readings.
type groups struct {
	proc  proc.Root
	mount string // where groups are mounted; if empty, none are searched
	known map[runKey]attemptGroup
}

// attemptGroup is the group of an attempt, once one was found.
type attemptGroup struct {
	group proc.Group
	// used is the time as last read: a group that is gone stays at that.
	used proc.Ticks
	// inside are the processes whose time the group counts.
	inside []int
}

// of returns the group of an attempt with the given processes; ok is false if it has none to itself. A marked process
// shows which group to look at.
func (g *groups) of(r runKey, tree map[int]proc.Stat, marked []int) (attemptGroup, bool) {
	found, known := g.known[r]
	if !known {
		if g.mount == "" || len(marked) == 0 {
			return attemptGroup{}, false
		}
		group, there := g.proc.Group(slices.Min(marked), g.mount)
		if !there {
			return attemptGroup{}, false
		}
		found.group = group
	}
	members, err := found.group.Members()
	foreign := func(pid int) bool { _, ours := tree[pid]; return !ours }
	if !known && (err != nil || len(members) == 0 || slices.ContainsFunc(members, foreign)) {
		return attemptGroup{}, false
	}
	if used, err := found.group.Used(); err == nil {
		found.used = max(found.used, used)
	}
	found.inside = members
	g.known[r] = found
	return found, true
}

// keep forgets the groups of attempts that are gone.
func (g *groups) keep(live map[runKey]proc.Ticks) {
	for r := range g.known {
		if _, lives := live[r]; !lives {
			delete(g.known, r)
		}
	}
}
