package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/local"
)

// planned is the newest plan that was accepted, with what finds a job in it; known is false before there is one.
type planned struct {
	plan  train.Plan
	known bool
	// at is the place of a job's allocation; wanted are the jobs that shall have a device.
	at     map[train.JobID]int
	wanted map[diff.Slot][]train.JobID
}

func newPlanned(p train.Plan) planned {
	n := len(p.Allocations)
	next := planned{plan: p, known: true, at: make(map[train.JobID]int, n), wanted: make(map[diff.Slot][]train.JobID, n)}
	for i, w := range p.Allocations {
		if _, twice := next.at[w.Job]; twice {
			continue
		}
		next.at[w.Job] = i
		for _, slot := range diff.Slots(w.Places()) {
			next.wanted[slot] = append(next.wanted[slot], w.Job)
		}
	}
	return next
}

// gives says whether the plan gives a job just these devices.
func (p planned) gives(job train.JobID, places []train.Part) bool {
	i, found := p.at[job]
	return found && train.SamePlaces(p.plan.Allocations[i].Places(), places)
}

// devices is how many the plan gives a job.
func (p planned) devices(job train.JobID) int {
	if i, found := p.at[job]; found {
		return len(train.AllDevices(p.plan.Allocations[i].Places()))
	}
	return 0
}

// about is the plan as far as it is about some jobs.
func (p planned) about(jobs []train.JobID) train.Plan {
	var places []int
	for _, id := range jobs {
		if i, found := p.at[id]; found {
			places = append(places, i)
		}
	}
	slices.Sort(places)
	part := p.plan
	part.Allocations = make([]train.Allocation, len(places))
	for i, place := range places {
		part.Allocations[i] = p.plan.Allocations[place]
	}
	return part
}

// follow takes a plan over. Of interest are the jobs whose live attempt does not hold what the plan gives them, or was asked to leave: the plan may want it to
// stay after all.
func (p *picture) follow(plan train.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = newPlanned(plan)
	for id := range p.plan.at {
		if a := p.attempts[id].Value; !a.Live() {
			p.touch(id)
		}
	}
	for id, e := range p.attempts {
		if e.Value.Live() && (e.Value.Stop != train.StopNone || !p.plan.gives(id, e.Value.Places())) {
			p.touch(id)
		}
	}
}

// followPlans takes over each newer plan as it is published.
func (e *executor) followPlans(ctx context.Context) error {
	subject := event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}
	from := uint64(1)
	again := time.NewTicker(300 * time.Millisecond)
	defer again.Stop()
	for {
		last, err := e.bus.Last(ctx, event.StreamPlans, subject)
		if err == nil {
			from = last.Sequence
		}
		if err == nil || errors.Is(err, bus.ErrNotFound) {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
	return e.bus.Follow(ctx, event.StreamPlans, []string{subject.String()}, from, e.seePlan)
}

// planner is the service whose plans are followed.
const planner = "planner"

// seePlan accepts a plan unless a newer one was accepted before: also by an executor that ran here earlier.
func (e *executor) seePlan(m bus.Message) {
	decided, err := event.Decode[event.PlanDecided](m.Data)
	if err = errors.Join(m.BodyErr, err); err != nil {
		e.log.Error("plan cannot be read", "sequence", m.Sequence, "error", err)
		return
	}
	if m.Source != "" && m.Source != planner {
		e.metrics.refused.Inc()
		e.log.Warn("plan of somebody else refused", "generation", decided.Generation, "source", m.Source)
		return
	}
	accepted, err := e.fence.accept(decided.Generation)
	if err != nil {
		e.log.Error("plan not taken over", "generation", decided.Generation, "error", err)
		return
	}
	if !accepted {
		e.metrics.refused.Inc()
		e.log.Warn("plan refused: its generation is older, or too far ahead", "generation", decided.Generation, "accepted", e.fence.highest, "file", e.fence.path)
		return
	}
	e.picture.follow(decided.Plan)
}

// fence keeps the highest generation of a plan that was accepted here. It is a file and not a key of the bus, since what it guards against is a bus whose
// past was lost: a plan from a restored backup must not move jobs. Who starts over with an empty bus on purpose removes the file.
type fence struct {
	path    string
	highest uint64
}

func openFence(dataDir string) (*fence, error) {
	f := &fence{path: filepath.Join(dataDir, "executor.generation")}
	data, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		f.highest, err = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("read the highest accepted plan from %s: %w", f.path, err)
	}
	return f, nil
}

// farthestLeap bounds how far a generation may be ahead of the last one. Planners count by one; a number near the end of the range, once accepted, would have
// every later plan refused.
const farthestLeap = 1 << 40

// accept says whether a plan may be followed; what it accepted is on disk when it returns.
func (f *fence) accept(generation uint64) (bool, error) {
	switch {
	case generation < f.highest || generation-f.highest > farthestLeap:
		return false, nil
	case generation == f.highest:
		return true, nil
	}
	if err := local.WriteFile(f.path, strconv.AppendUint(nil, generation, 10)); err != nil {
		return false, err
	}
	f.highest = generation
	return true, nil
}
