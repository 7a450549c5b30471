// Package plan decides which job holds which devices. Decide is pure: the same state and policy give the same plan. The
// plan says what is wanted. The executor carries it out, and waits for a job to leave before the next one starts on its
// devices.
//
// For every policy: a device is given once, or to jobs of one tenant that share its memory; no tenant holds more than
// its quota, and no plan is predicted to draw more than the power budget. For the policies of the live planner: a job
// gets between min_devices and max_devices, or as many as its experiment chooses, or nothing. Jobs with a strictly
// higher priority go first and may take devices from lower ones, which leave at their next checkpoint. An attempt that
// never called the job API is neither moved nor resized, since it could only be killed. A job keeps its devices while
// its size does not change, some of them if it shrinks, all if it grows. Deciding again without news stops and moves no
// attempt.
package plan

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/colocate"
	"github.com/switchyard-dl/switchyard/services/planner/plan/explain"
	"github.com/switchyard-dl/switchyard/services/planner/plan/feasible"
	"github.com/switchyard-dl/switchyard/services/planner/plan/place"
	"github.com/switchyard-dl/switchyard/services/planner/plan/policy"
	"github.com/switchyard-dl/switchyard/services/planner/plan/queue"
)

// Decide makes the plan; its generation and time are left to the caller. It is one function for the live planner, for
// what-if and for simulations. docs/planner.md walks through its phases.
func Decide(s State, p Policy) train.Plan {
	d := newDecision(&s, p) // 1. snapshot of the cluster: nodes, devices, gangs, ledger
	d.queue()               // 2. order, deferral until energy is cheaper, jobs that people hold or have paused
	d.classify()            // 3. feasibility: labels, links that lose packets
	d.constrain()           // 4. what each gang holds, least, most, and whether it may move
	d.separate()            // 5. gangs that must leave co-runners, slow devices or bad links
	d.reserve()             // 6. reservations for jobs that have waited too long, nominations of guests
	d.allocate()            // 7. policy: how many of what; placement: where; colocation: beside whom
	d.backfill()            // 8. waiting gangs on what is left, beside others, or in place of lower priorities
	d.adjust()              // 9. sizes that experiments want, guests to devices of their own
	return d.explain()      // 10. who gets what, and why
}

// decision is one call of Decide.
type decision struct {
	policy Policy
	plain  bool
	*cluster.Snapshot
	// sharing is nil if no gang may share a device.
	sharing  *colocate.Sharing
	spaces   *feasible.Spaces
	finder   *place.Finder
	deferred []train.Waiting
	memory   memory
	// basis is a part of the fingerprint, 0 until it is needed.
	basis digest
	// left is what the policy wants to find again.
	left string
}

func newDecision(s *State, p Policy) *decision {
	d := &decision{policy: p, plain: policy.IsPlain(p), Snapshot: cluster.New(s, p.Bounds), memory: readMemory(s.Memory)}
	d.spaces = feasible.NewSpaces(d.Snapshot)
	return d
}

func (d *decision) queue() {
	d.deferred = queue.Defer(d.Snapshot)
}

func (d *decision) classify() { feasible.Classify(d.Snapshot) }

// separate changes what gangs hold that must not go on where they are, or had better not.
func (d *decision) separate() {
	if !d.plain && colocate.Any(d.Snapshot) {
		d.sharing = colocate.New(d.Snapshot)
		d.sharing.Separate()
	}
	place.Migrate(d.Snapshot, d.split)
}

// split parts a gang from those that it shares devices with.
func (d *decision) split(g *cluster.Gang) { d.sharing.Split(g) }

// reserve keeps idle devices for gangs that have waited for too long, and nominates guests.
func (d *decision) reserve() {
	if d.plain {
		return
	}
	joins := func(*cluster.Gang) bool { return false }
	if d.sharing != nil {
		d.sharing.See()
		joins = d.sharing.Finds
	}
	kept := queue.Reserve(d.Snapshot, queue.Starve(d.Snapshot), joins)
	if d.sharing != nil {
		d.sharing.Kept = kept
		d.sharing.See()
		d.sharing.Nominate(d.possible)
	}
	d.group()
}

// possible reports whether a gang would find a place in an empty cluster.
func (d *decision) possible(g *cluster.Gang) bool {
	if _, never := d.spaces.Impossible(g); never {
		return false
	}
	for i := range d.Nodes {
		if n := &d.Nodes[i]; g.Suits(n) && d.Ledger.Granted(g, n.Watts) >= g.Least {
			return true
		}
	}
	return false
}

// allocate asks the policy, places what it gives, and guests beside their primaries. If a guest finds its primary
// gone, or a gang whose experiment chose its size cannot keep that, it asks once more, with the guest as a candidate of
// its own and the gang at its least.
func (d *decision) allocate() {
	notes := make([]cluster.Notes, len(d.Gangs))
	for i, g := range d.Gangs {
		notes[i] = g.Notes
	}
	mark := d.Ledger.Mark()
	for pass := range 2 {
		d.round()
		if again := d.displaced(); !again || pass == 1 {
			return
		}
		d.Ledger.Watch(nil)
		d.Ledger.Undo(mark)
		for i, g := range d.Gangs {
			g.Notes, g.Head, g.Batch, g.Turn = notes[i], nil, train.Batch{}, g.Rank
			d.Ledger.Claim(g, cluster.Placement{})
		}
		d.group()
	}
}

// round is one call of the policy.
func (d *decision) round() {
	r := &policy.Round{Snapshot: d.Snapshot, Spaces: d.spaces, Memory: d.memory.policy()}
	for _, g := range d.Gangs {
		if g.Pinned && g.Stuck() {
			d.Ledger.Force(g, g.Held)
			r.Kept = append(r.Kept, g)
		}
	}
	for _, g := range d.Gangs {
		kept := g.Pinned || d.NoNews && !d.plain && g.Primary == nil
		if kept && g.Got.Empty() && d.Ledger.TakeHeld(g) {
			r.Kept = append(r.Kept, g)
		}
		if g.Got.Empty() && g.Primary == nil {
			r.Candidates = append(r.Candidates, g)
		}
	}
	slices.SortStableFunc(r.Candidates, func(x, y *cluster.Gang) int { return cmp.Compare(y.Level, x.Level) })
	r.Finder = place.NewFinder(d.Snapshot)
	d.finder = r.Finder
	d.policy.Decide(r)
	d.left = r.Memory
	for _, g := range d.Gangs {
		d.Ledger.Claim(g, cluster.Placement{})
	}
	place.Steer(d.Snapshot)
	place.Name(d.Snapshot)
}

// displaced places guests, and says whether the policy has to be asked again.
func (d *decision) displaced() bool {
	again := false
	if d.sharing != nil {
		again = len(d.sharing.Settle()) > 0
	}
	for _, g := range d.Gangs {
		if least := d.leastWanted(g); g.Got.Empty() && g.Wanted > 0 && g.Least > least && !g.Stuck() {
			g.Least, g.Most, again = least, least, true
			g.Held = cluster.Placement{}
		}
	}
	return again
}

func (d *decision) explain() train.Plan {
	made := explain.Plan(d.Snapshot, d.sharing)
	made.Policy = d.policy.Name()
	made.Waiting = slices.Concat(made.Waiting, explain.Behind(d.State.Behind), d.deferred)
	made.Memory = d.remember()
	return made
}
