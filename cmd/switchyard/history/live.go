package history

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
)

// Live is a history as the simulator wants it, beside what really happened.
type Live struct {
	Workload sim.Workload
	// Nodes are all that were ever there, Absences when which of their devices were not.
	Nodes    []train.Node
	Absences []sim.Absence
	// State is what the planner was told beside the time, the nodes and the jobs; Policy is the one that decided last.
	State  plan.State
	Policy string
	// Happened are the jobs that can be compared: those that have ended and were not under way when the stretch began, since what they then waited for
	// is not known.
	Happened map[train.JobID]Outcome
	LeftOut  []LeftOut
	// Seconds is how long all of it took.
	Seconds float64
}

// Outcome is what became of a job.
type Outcome struct {
	// ArrivedSeconds is when it was submitted, from the first submission on; JCTSeconds how long it took from then to its end.
	ArrivedSeconds, JCTSeconds float64
	Starts                     int
}

// LeftOut is a job that cannot be simulated.
type LeftOut struct {
	Job train.JobID `json:"job"`
	Why string      `json:"why"`
}

// aliveWithin is how much older than the newest sign of life of any node that of a node may be that still counts: in an old bundle all are old.
const aliveWithin = 10 * time.Minute

// Live turns the history into a workload.
func (h History) Live() (Live, error) {
	h.presentNow()
	all := lives(h)
	if len(all) == 0 {
		return Live{}, errors.New("no job is recorded in this time")
	}
	first, last := all[0].submitted, h.Facts[len(h.Facts)-1].Time
	for _, l := range all {
		if l.submitted.Before(first) {
			first = l.submitted
		}
	}
	live := Live{Workload: sim.Workload{Name: "recorded"}, Happened: map[train.JobID]Outcome{}, Seconds: last.Sub(first).Seconds()}
	live.Nodes, live.Absences = presence(h.Sightings, first)
	for _, l := range all {
		r, why := l.recorded(last)
		if why != "" && r != nil {
			why = borrow(r, l, all, h.Models, why)
		}
		if why != "" {
			live.LeftOut = append(live.LeftOut, LeftOut{l.id, why})
			continue
		}
		arrived := l.submitted.Sub(first).Seconds()
		compared := !l.finished.IsZero() && !l.submitted.Before(h.Since)
		live.Workload.Jobs = append(live.Workload.Jobs, sim.Arrival{Name: l.id, Seconds: arrived, Application: string(l.id), Recorded: r, Background: !compared})
		if compared {
			live.Happened[l.id] = Outcome{arrived, l.finished.Sub(l.submitted).Seconds(), len(l.attempts)}
		}
	}
	if len(live.Workload.Jobs) == 0 {
		return live, fmt.Errorf("none of the %d recorded jobs tells how fast it is; %s: %s", len(all), live.LeftOut[0].Job, live.LeftOut[0].Why)
	}
	for i := range live.Workload.Jobs {
		// Where nothing can be compared the figures are predictions for all.
		live.Workload.Jobs[i].Background = live.Workload.Jobs[i].Background && len(live.Happened) > 0
	}
	live.decider(h)
	return live, nil
}

// borrow takes what was learned from the heartbeats of a job that has ended no epoch, or the epochs of a job just like it; what is left is why neither helps.
func borrow(r *sim.Recorded, l *life, all []*life, models []train.Model, why string) string {
	if i := slices.IndexFunc(models, func(m train.Model) bool { return m.Job == string(l.id) && m.Speed.Known() }); i >= 0 {
		r.Model = &models[i]
		return ""
	}
	i := slices.IndexFunc(all, func(other *life) bool { return other.done > 0 && l.like(other) })
	if i < 0 {
		return why
	}
	r.Seen, r.StartSeconds = all[i].epochs, all[i].startSeconds()
	return ""
}

// decider finds who decided last, and what it was told.
func (l *Live) decider(h History) {
	if h.Input != nil {
		l.Policy, l.State = h.Input.Policy, h.Input.State
		l.State.Jobs, l.State.Nodes, l.State.Memory = nil, nil, ""
	}
	for _, f := range slices.Backward(h.Plans) {
		if decided, err := event.Decode[event.PlanDecided](f.Body); err == nil && decided.Policy != "" && f.Source == "planner" {
			l.Policy = decided.Policy
			return
		}
	}
}

// presentNow takes what the records of nodes tell for the last sighting.
func (h *History) presentNow() {
	now := h.MadeAt
	if n := len(h.Facts); n > 0 && h.Facts[n-1].Time.After(now) {
		now = h.Facts[n-1].Time
	}
	if alive := aliveNodes(h.Nodes); len(alive) > 0 {
		h.see(now, alive)
	}
}

func aliveNodes(nodes []train.Node) []train.Node {
	var newest time.Time
	for _, n := range nodes {
		if n.SeenAt.After(newest) {
			newest = n.SeenAt
		}
	}
	var alive []train.Node
	for _, n := range nodes {
		if newest.Sub(n.SeenAt) <= aliveWithin && len(n.Devices) > 0 {
			alive = append(alive, n)
		}
	}
	return alive
}
