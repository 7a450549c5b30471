// Package policy decides how many devices each gang gets, based on its predicted speed. A policy sees the cluster, the
// gangs that it may serve, and the ledger through which it gives devices to them; package place finds the nodes.
// Published baselines implement Policy outside of this repository's product.
package policy

import (
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/feasible"
	"github.com/switchyard-dl/switchyard/services/planner/plan/place"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// Policy decides how many devices each gang gets.
type Policy interface {
	Name() string
	// Bounds are the least and the most devices that the policy may give to a job: Declared or Requested, mostly.
	Bounds(j *state.Job, spec train.Spec) (least, most int)
	// Decide serves the candidates of a round. What it does not give away stays free.
	Decide(r *Round)
}

// Plain is a policy that is to be taken as it was published: no phase reserves, backfills, shares or preempts around
// it.
type Plain interface{ Plain() bool }

// IsPlain says whether a policy is a plain one.
func IsPlain(p Policy) bool {
	plain, is := p.(Plain)
	return is && plain.Plain()
}

// Declared are the bounds that the user declared.
func Declared(_ *state.Job, spec train.Spec) (least, most int) { return spec.DeviceBounds() }

// Round is one call of a policy.
type Round struct {
	*cluster.Snapshot
	// Candidates are the gangs that the policy decides about, by level, then in the order of cluster.InQueue; their Got is
	// empty. Kept are gangs that keep what they hold since there is no news.
	Candidates, Kept []*cluster.Gang
	Finder           *place.Finder
	Spaces           *feasible.Spaces
	// Memory is what the policy left in the last plan, as JSON; what it writes there goes into this plan.
	Memory string
}

// Tiers are the candidates by level, the highest first.
func (r *Round) Tiers() [][]*cluster.Gang {
	var tiers [][]*cluster.Gang
	for i, g := range r.Candidates {
		if i == 0 || r.Candidates[i-1].Level != g.Level {
			tiers = append(tiers, nil)
		}
		last := len(tiers) - 1
		tiers[last] = append(tiers[last], g)
	}
	return tiers
}

// ClaimAll has each candidate claim what it holds, so that those that are served before it rather take other devices.
func (r *Round) ClaimAll() {
	for _, g := range r.Candidates {
		r.Ledger.Claim(g, g.Held)
	}
}

// Keep gives a gang what it holds, if that is still to be had.
func (r *Round) Keep(g *cluster.Gang) bool {
	r.Ledger.Claim(g, cluster.Placement{})
	return r.Ledger.TakeHeld(g)
}

// KeepAll keeps what it can of a tier and returns the other gangs, in order.
func (r *Round) KeepAll(tier []*cluster.Gang) []*cluster.Gang {
	var waiting []*cluster.Gang
	for _, g := range tier {
		if !r.Keep(g) {
			waiting = append(waiting, g)
		}
	}
	return waiting
}

// Serve gives a gang the least that it needs, from lower ones if it must, and as much more as nobody claims there.
func (r *Round) Serve(g *cluster.Gang) bool {
	r.Ledger.Claim(g, cluster.Placement{})
	p, found := r.Finder.Find(g, g.Least, g.ServersFor(g.Least))
	if !found {
		return false
	}
	if len(p.Parts) == 1 && g.Most > g.Least {
		node := p.Parts[0].Node
		more := min(g.Most, max(g.Least, min(r.Ledger.Unclaimed(g, node), r.Ledger.Most(g, node))))
		for more > g.Least && !r.Ledger.HasRoom(g, node, more, g.ServersLeast()) {
			more--
		}
		if place.Give(r.Snapshot, g, onNode(node, more)) {
			return true
		}
	}
	return r.Ledger.Take(g, p)
}

// Possible reports whether some place would be large enough for a gang in an empty cluster.
func (r *Round) Possible(g *cluster.Gang) bool { return r.Spaces.Of(g).Widest >= g.Least }

// none is no node, no option and no limit.
const none = -1
