package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// allocated says why a job gets what it gets.
func (a *account) allocated(c *candidate) train.Reason {
	had, has := c.first.total(), c.got.total()
	switch {
	case !c.first.held():
		return a.placed(c)
	case c.sampled && has != had:
		return train.Reason{Code: ReasonSampling, Message: fmt.Sprintf("goes on with %s instead of %d for an epoch: how fast it is there is not known, and nobody waits",
			devices(has), had)}
	case c.first.same(&c.got):
		return a.kept(c)
	case len(c.shunned) > 0 && has == had:
		return a.offLinks(c)
	case len(c.replaced) > 0 && has == had:
		return c.replacedSlow()
	case c.got.node != c.first.node && c.got.spread() == 1:
		return train.Reason{Code: ReasonMoved, Message: fmt.Sprintf("goes on with %s: %s", a.where(&c.got), a.lostTo(c))}
	case has > had && c.predicted.source == fromNothing:
		return train.Reason{Code: ReasonGrewByMarginalGain, Message: fmt.Sprintf("gets %s instead of %d", a.where(&c.got), had)}
	case has > had:
		return train.Reason{Code: ReasonGrewByMarginalGain, Message: fmt.Sprintf("%s instead of %d save %.0f s of %.0f s; the restart costs %.0f s",
			devices(has), had, c.saves(had, has), c.remaining(had), a.restartSeconds(c))}
	case has < had:
		if before, after := c.remaining(had), c.remaining(has); after < before {
			return train.Reason{Code: ReasonShrunkForSpeed, Message: fmt.Sprintf("%s are predicted to save %.0f s of %.0f s against %d", devices(has), before-after, before, had)}
		}
		return train.Reason{Code: ReasonShrunkForOthers, Message: fmt.Sprintf("keeps %d of %s: %s", has, devices(had), a.lostTo(c))}
	case c.got.spread() > 1 || c.first.spread() > 1:
		return train.Reason{Code: ReasonMoved, Message: "goes on with " + a.where(&c.got)}
	}
	return train.Reason{Code: ReasonMoved, Message: fmt.Sprintf("goes on with other devices of node %s: %s", a.nodes[c.got.node].id, a.lostTo(c))}
}

// placed is the reason of a job that held nothing.
func (a *account) placed(c *candidate) train.Reason {
	message := "gets " + a.where(&c.got)
	if _, marginal := a.policy.(Optimus); marginal && c.got.size > c.min {
		before, after := c.remaining(c.min), c.remaining(c.got.size)
		words := fmt.Sprintf("%s; %d instead of %d save %.0f s of %.0f s", message, c.got.size, c.min, before-after, before)
		if c.predicted.source != fromModel {
			words += " as far as can be told before the first epoch"
		}
		return train.Reason{Code: ReasonGrewByMarginalGain, Message: words}
	}
	if bad := a.above(); len(bad) > 0 && c.got.spread() > 1 {
		message += ", off others: " + lossWords(bad)
	}
	if leaving := a.leaving(c); len(leaving) > 0 {
		message += ", which " + strings.Join(leaving, ", ") + " must leave first"
	}
	return train.Reason{Code: ReasonPlaced, Message: message}
}

// kept is the reason of a job that goes on as it is.
func (a *account) kept(c *candidate) train.Reason {
	r := train.Reason{Code: ReasonKept, Message: "keeps " + devices(c.got.total())}
	grows := false
	switch a.policy.(type) {
	case Optimus, Switchyard:
		grows = a.tuning.AtEpochs || !a.spans
	}
	free := 0
	if c.got.spread() == 1 {
		free = min(a.most(c, c.got.node), c.max-c.got.size)
	}
	switch {
	case c.pinned:
		r.Message += "; it has not called the job API yet, so it cannot be asked to leave"
	case !grows || free <= 0:
	case c.RecentRestarts >= a.tuning.MaxRestartsPerHour:
		r.Message += fmt.Sprintf("; it was restarted %d times within an hour, as often as is allowed", c.RecentRestarts)
	case !c.rescalable:
		r.Message += "; it may grow once it has finished an epoch on them"
	default:
		r.Code = ReasonRestartNotWorth
		r.Message += fmt.Sprintf("; %d more would save %.0f s of %.0f s, less than a restart must save",
			free, max(c.saves(c.got.size, c.got.size+free), 0), c.remaining(c.got.size))
	}
	return r
}

// lostTo names the jobs that get devices which c held.
func (a *account) lostTo(c *candidate) string {
	takers := a.takers(c)
	if len(takers) == 0 {
		return "the others are needed otherwise"
	}
	return "the others go to " + list(takers)
}

func (a *account) takers(c *candidate) []*candidate { return others(&c.first, a.owner, c) }

// leaving names the jobs that held what c gets.
func (a *account) leaving(c *candidate) []string {
	var names []string
	for _, o := range others(&c.got, a.former, c) {
		names = append(names, string(o.ID))
	}
	return names
}

// others are the jobs besides c that have devices of a place.
func others(p *place, owners [][]*candidate, c *candidate) []*candidate {
	var found []*candidate
	for i := range p.spread() {
		for _, d := range p.part(i).devices {
			if o := owners[p.part(i).node][d]; o != nil && o != c && !slices.Contains(found, o) {
				found = append(found, o)
			}
		}
	}
	return found
}
