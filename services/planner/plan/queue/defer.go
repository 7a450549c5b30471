// Package queue decides who waits for what before a policy is asked: jobs that are held or paused, deferral until other
// jobs have ended, energy is cheaper or the next month of a tenant's quota begins, and reservations for jobs that have
// waited for too long, which smaller jobs may not backfill. The order of the queue itself is cluster.InQueue.
package queue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// Postponed is the code of a job that waits for energy that is cleaner or cheaper.
const Postponed = "Postponed"

// ArrayLimit is the code of a job of an array of which enough others run.
const ArrayLimit = "ArrayLimit"

// EnergyQuotaReached is the code of a job whose tenant has used the energy of its quota.
const EnergyQuotaReached = "EnergyQuotaReached"

// Defer takes those jobs out that people hold or have paused, those that wait for other jobs to end, those of tenants
// that have used their energy, those of an array of which enough run, and those whose energy will cost less later, by
// the time at which their users want them to start at the latest. It returns why they wait, the soonest first.
func Defer(s *cluster.Snapshot) []train.Waiting {
	var waiting []train.Waiting
	arrays := roomInArrays(s.Gangs)
	s.Gangs = slices.DeleteFunc(s.Gangs, func(g *cluster.Gang) bool {
		w := train.Waiting{Job: g.ID, Blockers: withheld(g)}
		if len(w.Blockers) == 0 {
			w = overspent(s, g)
		}
		if len(w.Blockers) == 0 {
			w.Blockers = arrays.take(g)
		}
		if len(w.Blockers) == 0 {
			w = postponed(s, g)
		}
		if len(w.Blockers) == 0 {
			return false
		}
		s.Deferred, waiting = append(s.Deferred, g), append(waiting, w)
		return true
	})
	for i, g := range s.Gangs {
		g.Rank, g.Turn = i, i
	}
	slices.SortFunc(waiting, func(a, b train.Waiting) int {
		return cmp.Or(cmp.Compare(a.StartInSeconds, b.StartInSeconds), cmp.Compare(a.Job, b.Job))
	})
	return waiting
}

// room is how many jobs of each array may still begin.
type room map[train.JobID]int

// roomInArrays counts the jobs of arrays that hold devices, or were given some.
func roomInArrays(gangs []*cluster.Gang) room {
	r := room{}
	for _, g := range gangs {
		m := g.Spec.ArrayMember
		if m == nil || m.AtOnce == 0 {
			continue
		}
		if _, known := r[m.Array]; !known {
			r[m.Array] = m.AtOnce
		}
		if holds(g) {
			r[m.Array]--
		}
	}
	return r
}

func holds(g *cluster.Gang) bool { return g.Running != nil || g.Planned != nil }

// take gives a job a place in its array; it returns why there is none.
func (r room) take(g *cluster.Gang) []train.Reason {
	m := g.Spec.ArrayMember
	if m == nil || m.AtOnce == 0 || holds(g) {
		return nil
	}
	if r[m.Array] > 0 {
		r[m.Array]--
		return nil
	}
	return []train.Reason{{Code: ArrayLimit, Message: fmt.Sprintf("%d jobs of the array %s run at once", m.AtOnce, m.Array), Hint: "the array was submitted with %" + strconv.Itoa(m.AtOnce)}}
}

// withheld are the reasons of a job that people hold or have paused, or that waits for others to end.
func withheld(g *cluster.Gang) []train.Reason {
	var reasons []train.Reason
	if g.Withheld != nil {
		reasons = append(reasons, *g.Withheld)
	}
	for _, d := range g.Awaits {
		reasons = append(reasons, d.Reason())
	}
	return reasons
}

// overspent is the wait of a job whose tenant has used the energy of its quota; without blockers if it need not wait. A
// job that holds devices goes on.
func overspent(s *cluster.Snapshot, g *cluster.Gang) train.Waiting {
	w := train.Waiting{Job: g.ID}
	q, bound := s.State.EnergyQuotas[g.Spec.Tenant]
	if !bound || holds(g) || !q.Reached(s.State.Now) {
		return w
	}
	w.StartInSeconds = q.Until.Sub(s.State.Now).Seconds()
	w.Blockers = []train.Reason{{
		Code: EnergyQuotaReached,
		Message: fmt.Sprintf("%q has used %.3g kWh this month, its quota is %.3g kWh: jobs that run go on, others wait until %s",
			g.Spec.Tenant, q.Used.KilowattHours(), q.Allowed.KilowattHours(), q.Until.UTC().Format(time.RFC3339)),
		Hint: fmt.Sprintf("a larger quota lets it start now: `switchyard tenant set %s --energy KWH`, by an operator", g.Spec.Tenant),
	}}
	return w
}

// postponed is the wait of a job whose energy will cost less later; without blockers if it need not wait. A job that
// has run is not deferred again.
func postponed(s *cluster.Snapshot, g *cluster.Gang) train.Waiting {
	w := train.Waiting{Job: g.ID}
	begun := g.Running != nil || g.Planned != nil || g.RunSeconds > 0
	if len(s.State.Rates) == 0 || begun || g.Spec.Energy == nil || g.Spec.Energy.StartBy == nil {
		return w
	}
	latest, takes := *g.Spec.Energy.StartBy, length(s, g)
	if d := g.Spec.Deadline; d != nil && d.Add(-takes).Before(latest) {
		latest = d.Add(-takes)
	}
	best, atOnce := s.State.Rates.BestStart(s.State.Now, latest, takes)
	if start := best.From; start.After(s.State.Now) {
		w.StartInSeconds = start.Sub(s.State.Now).Seconds()
		w.Blockers = []train.Reason{{
			Code: Postponed, Message: "starts at " + start.UTC().Format(time.RFC3339) + gain(atOnce, best),
			Hint: "leave out energy.start_by to start at once",
		}}
	}
	return w
}

// gain says how much cheaper and cleaner the energy of a later start is, as far as each is known.
func gain(atOnce, later state.Rate) string {
	words, mark := "", ": "
	for _, part := range []struct {
		before, after float64
		less, more    string
	}{
		{atOnce.PricePerKWh, later.PricePerKWh, "cheaper", "dearer"},
		{atOnce.GramsPerKWh, later.GramsPerKWh, "less CO2e", "more CO2e"},
	} {
		if part.before == 0 {
			continue
		}
		percent, word := math.Round(100*(1-part.after/part.before)), part.less
		if percent < 0 {
			word = part.more
		}
		words += fmt.Sprintf("%s%.0f %% %s", mark, math.Abs(percent), word)
		mark = ", "
	}
	return words
}

// length returns the time that a job is assumed to run on the fewest devices that it asks for.
func length(s *cluster.Snapshot, g *cluster.Gang) time.Duration {
	seconds := g.Spec.EstimatedHours * 3600
	if m := g.Model; m != nil && g.Spec.Epochs() > 0 && m.Times(&g.Spec) {
		on := g.Spec.On(max(g.Spec.MinDevices, 1), 1)
		left, _ := m.RemainingSeconds(on, 0, g.Spec.StopRule(), g.Spec.StepsIn)
		seconds = left.Expected
	}
	if !(seconds > 0) {
		seconds = s.Tuning.UnknownSeconds
	}
	const longest = 365 * 24 * 3600
	return time.Duration(math.Min(seconds, longest) * float64(time.Second))
}
