// Package queue decides who waits for what before a policy is asked: deferral until energy is cheaper, jobs that are
// held or paused, and reservations for jobs that have waited for too long, which smaller jobs may not backfill. The
// order of the queue itself is cluster.InQueue.
package queue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// Postponed is the code of a job that waits for energy that is cleaner or cheaper.
const Postponed = "Postponed"

// Defer takes those jobs out whose energy will cost less later, by the time at which their users want them to start at
// the latest. A job that has run is not deferred again. It returns why they wait, the soonest first.
func Defer(s *cluster.Snapshot) []train.Waiting {
	if len(s.State.Rates) == 0 {
		return nil
	}
	var waiting []train.Waiting
	s.Gangs = slices.DeleteFunc(s.Gangs, func(g *cluster.Gang) bool {
		begun := g.Running != nil || g.Planned != nil || g.RunSeconds > 0
		if begun || g.Spec.Energy == nil || g.Spec.Energy.StartBy == nil {
			return false
		}
		start, saving := s.State.Rates.BestStart(s.State.Now, *g.Spec.Energy.StartBy, length(s, g))
		if !start.After(s.State.Now) {
			return false
		}
		s.Deferred = append(s.Deferred, g)
		waiting = append(waiting, train.Waiting{
			Job: g.ID, StartInSeconds: start.Sub(s.State.Now).Seconds(),
			Blockers: []train.Reason{{
				Code: Postponed, Message: fmt.Sprintf("starts at %s: energy then costs %.0f %% less", start.UTC().Format(time.RFC3339), 100*saving),
				Hint: "leave out energy.start_by to start at once",
			}},
		})
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

// Withhold takes those jobs out that people hold or have paused, and returns why they wait.
func Withhold(s *cluster.Snapshot) []train.Waiting {
	var waiting []train.Waiting
	s.Gangs = slices.DeleteFunc(s.Gangs, func(g *cluster.Gang) bool {
		if g.Withheld != nil {
			s.Deferred, waiting = append(s.Deferred, g), append(waiting, train.Waiting{Job: g.ID, Blockers: []train.Reason{*g.Withheld}})
		}
		return g.Withheld != nil
	})
	for i, g := range s.Gangs {
		g.Rank, g.Turn = i, i
	}
	return waiting
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
