package plan

import (
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// granter is a policy whose gangs may span nodes.
type granter interface {
	Name() string
	// grant gives each gang its shares.
	grant(f *fleet)
}

// allot decides with a granter.
func allot(s State, p granter) train.Plan {
	f := newFleet(s)
	p.grant(f)
	return f.plan(p)
}

// plan settles on the board what was counted: which devices each gang gets, and the words.
func (f *fleet) plan(p granter) train.Plan {
	for _, g := range slices.Concat(f.pinned, f.gangs) {
		g.candidate.got, g.candidate.batch = placeOf(g.got), g.batch
		for _, s := range g.got {
			f.board.nodes[s.node].used += s.devices
		}
	}
	f.board.steer()
	f.board.assign()
	made := explain(f.board, p)
	made.Memory = f.memory
	return made
}
