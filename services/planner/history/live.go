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

// Live is a history in the form of the simulator, beside what really happened.
type Live struct {
	Workload sim.Workload
	// Nodes are all nodes that were ever there, Absences the times at which some of their devices were not.
	Nodes    []train.Node
	Absences []sim.Absence
	// State is what the planner knew beside the time, the nodes and the jobs. Policy is the policy that decided
	// last.
	State  plan.State
	Policy string
	// Happened holds the jobs that can be compared: those that have ended and were submitted after the start of the
	// time asked for. It is unknown what earlier jobs waited for.
	Happened map[train.JobID]Outcome
	LeftOut  []LeftOut
	// Seconds is the time that all of it took.
	Seconds float64
}

// Outcome is the course of a job.
type Outcome struct {
	// ArrivedSeconds is the time of its submission after the first submission, JCTSeconds the time from then to its
	// end.
	ArrivedSeconds, JCTSeconds float64
	Starts                     int
}

// LeftOut is a job that cannot be simulated.
type LeftOut struct {
	Job train.JobID `json:"job"`
	Why string      `json:"why"`
}

// aliveWithin bounds how much older the last sign of life of a node may be than the newest of any node: in an old
// bundle all are old.
const aliveWithin = 10 * time.Minute

// Live turns the history into a workload.
func (h History) Live() (Live, error) {
	h.presentNow()
	all := lives(h)
	if len(all) == 0 {
		return Live{}, errors.New("no job is recorded in this time")
	}
	first := slices.MinFunc(all, func(x, y *life) int { return x.submitted.Compare(y.submitted) }).submitted
	last := h.Facts[len(h.Facts)-1].Time
	live := Live{Workload: sim.Workload{Name: "recorded"}, Happened: map[train.JobID]Outcome{}, Seconds: last.Sub(first).Seconds()}
	live.Nodes, live.Absences = presence(h.Sightings, first)
	shared := newSharing(h, all, h.knownState().Interference)
	for _, l := range all {
		shared.separate(l)
	}
	for _, l := range all {
		r, why := l.recorded(last)
		if r != nil && r.RunSeconds > 0 && len(l.attempts) > 0 {
			r.RunSeconds *= shared.aloneAtLast(l, last)
		}
		if why != "" && r != nil {
			why = borrow(r, l, all, h.Models, why)
		}
		if why != "" {
			live.LeftOut = append(live.LeftOut, LeftOut{l.id, why})
			continue
		}
		live.add(l, r, first, h.Since)
	}
	if len(live.Workload.Jobs) == 0 {
		return live, fmt.Errorf("none of the %d recorded jobs tells how fast it is; %s: %s", len(all), live.LeftOut[0].Job, live.LeftOut[0].Why)
	}
	for i := range live.Workload.Jobs {
		// If no job can be compared, the figures are predictions for all jobs.
		live.Workload.Jobs[i].Background = live.Workload.Jobs[i].Background && len(live.Happened) > 0
	}
	live.decider(h)
	return live, nil
}

// add adds a job to the workload, and to what happened if it can be compared.
func (l *Live) add(one *life, r *sim.Recorded, first, since time.Time) {
	arrived := one.submitted.Sub(first).Seconds()
	compared := !one.finished.IsZero() && !one.submitted.Before(since)
	l.Workload.Jobs = append(l.Workload.Jobs, sim.Arrival{Name: one.id, Seconds: arrived, Source: r, Background: !compared})
	if compared {
		l.Happened[one.id] = Outcome{arrived, one.finished.Sub(one.submitted).Seconds(), len(one.attempts)}
	}
}

// borrow gives a job that has ended no epoch the model learned from its heartbeats, or the epochs of a job just
// like it. It returns why neither is there.
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

// decider finds the policy that decided last, and what it knew.
func (l *Live) decider(h History) {
	if h.Input != nil {
		l.Policy = h.Input.Policy
	}
	l.State = h.knownState()
	l.State.Jobs, l.State.Nodes, l.State.Memory = nil, nil, ""
	for _, f := range slices.Backward(h.Plans) {
		if decided, err := event.Decode[event.PlanDecided](f.Body); err == nil && decided.Policy != "" && f.Source == "planner" {
			l.Policy = decided.Policy
			return
		}
	}
}

// presentNow takes the records of nodes as the last sighting.
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
