package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// acceptedPlan is the newest accepted plan with an index of its jobs; known is false before there is one.
type acceptedPlan struct {
	plan  train.Plan
	known bool
	// at is the position of a job's allocation. wanted are the jobs to which the plan gives a device.
	at     map[train.JobID]int
	wanted map[train.NodeDevice][]train.JobID
}

func newAcceptedPlan(c train.Plan) acceptedPlan {
	n := len(c.Allocations)
	next := acceptedPlan{plan: c, known: true, at: make(map[train.JobID]int, n), wanted: make(map[train.NodeDevice][]train.JobID, n)}
	for i, w := range c.Allocations {
		if _, twice := next.at[w.Job]; twice {
			continue
		}
		next.at[w.Job] = i
		for _, device := range train.NodeDevices(w.Places()) {
			next.wanted[device] = append(next.wanted[device], w.Job)
		}
	}
	return next
}

// assigns reports whether the plan gives a job exactly these devices.
func (c acceptedPlan) assigns(job train.JobID, places []train.Part) bool {
	i, found := c.at[job]
	return found && train.SamePlaces(c.plan.Allocations[i].Places(), places)
}

// devices returns how many devices the plan gives a job.
func (c acceptedPlan) devices(job train.JobID) int {
	if i, found := c.at[job]; found {
		return len(train.AllDevices(c.plan.Allocations[i].Places()))
	}
	return 0
}

// restrictedTo returns the plan with the allocations of some jobs only.
func (c acceptedPlan) restrictedTo(jobs []train.JobID) train.Plan {
	var places []int
	for _, id := range jobs {
		if i, found := c.at[id]; found {
			places = append(places, i)
		}
	}
	slices.Sort(places)
	part := c.plan
	part.Allocations = make([]train.Allocation, len(places))
	for i, place := range places {
		part.Allocations[i] = c.plan.Allocations[place]
	}
	return part
}

// follow replaces the plan. It queues the jobs without a live attempt, those whose live attempt does not hold what
// the plan gives them, and those that were asked to leave: the plan may want them to stay after all.
func (c *cache) follow(plan train.Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan = newAcceptedPlan(plan)
	for id := range c.plan.at {
		if a := c.attempts[id].Value; !a.Live() {
			c.queue.add(id)
		}
	}
	for id := range c.live {
		if a := c.attempts[id].Value; a.Stop != train.StopNone || !c.plan.assigns(id, a.Places()) {
			c.queue.add(id)
		}
	}
}

// planFollower accepts plans as they are published.
type planFollower struct {
	bus     *bus.Bus
	log     *slog.Logger
	fence   *fence
	cache   *cache
	metrics *metrics
}

// run accepts newer plans until ctx ends.
func (f *planFollower) run(ctx context.Context) error {
	subject := event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}
	from := uint64(1)
	for range tick.Every(ctx, 300*time.Millisecond) {
		last, err := f.bus.Last(ctx, event.StreamPlans, subject)
		if err == nil {
			from = last.Sequence
		}
		if err == nil || errors.Is(err, bus.ErrNotFound) {
			return f.bus.Follow(ctx, event.StreamPlans, []string{subject.String()}, from, f.onPlan)
		}
	}
	return nil
}

// planner is the service whose plans are followed.
const planner = "planner"

// onPlan accepts a plan unless a newer one was accepted before, even by an earlier executor on this machine.
func (f *planFollower) onPlan(m bus.Message) {
	decided, err := event.Decode[event.PlanDecided](m.Data)
	if err = errors.Join(m.BodyErr, err); err != nil {
		f.log.Error("plan cannot be read", "sequence", m.Sequence, "error", err)
		return
	}
	if m.Source != "" && m.Source != planner {
		f.metrics.refused.Inc()
		f.log.Warn("plan of another service refused", "generation", decided.Generation, "source", m.Source)
		return
	}
	accepted, err := f.fence.accept(decided.Generation)
	if err != nil {
		f.log.Error("plan not accepted", "generation", decided.Generation, "error", err)
		return
	}
	if !accepted {
		f.metrics.refused.Inc()
		f.log.Warn("plan refused: its generation is older, or too far ahead", "generation", decided.Generation, "accepted", f.fence.highest, "file", f.fence.file.Name())
		return
	}
	f.cache.follow(decided.Plan)
	f.metrics.generation.Set(float64(decided.Generation))
	f.metrics.planDelay.Observe(max(time.Since(m.Stored), 0).Seconds())
	if err := f.fence.sync(); err != nil {
		f.log.Warn("the generation of the newest plan is not on disk yet", "file", f.fence.file.Name(), "error", err)
	}
}

// fence keeps the highest generation of a plan that was accepted here. It is a file and not a key of the bus, because
// it guards against a bus whose past was lost: a plan from a restored backup must not move jobs. An operator who
// starts over with an empty bus on purpose removes the file.
type fence struct {
	file    *os.File
	highest uint64
}

// openFence opens the fence, empty if there is none yet.
func openFence(dataDir string) (*fence, error) {
	path := filepath.Join(dataDir, "executor.generation")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("read the highest accepted plan: %w", err)
	}
	f := &fence{file: file}
	data, err := io.ReadAll(file)
	if data = bytes.Trim(data, "\x00"); err == nil && len(data) > 0 { // else the machine failed before one was on disk
		f.highest, err = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	}
	if err = errors.Join(err, installation.SyncFolder(dataDir)); err != nil {
		return nil, errors.Join(fmt.Errorf("read the highest accepted plan from %s: %w", path, err), file.Close())
	}
	return f, nil
}

// farthestLeap bounds how far a generation may be ahead of the last one. Planners count by one; a number near the end
// of the range, once accepted, would make this executor refuse every later plan.
const farthestLeap = 1 << 40

// accept reports whether a plan may be followed. When it returns, every later process finds an accepted generation;
// sync makes it survive the machine.
func (f *fence) accept(generation uint64) (bool, error) {
	switch {
	case generation < f.highest || generation-f.highest > farthestLeap:
		return false, nil
	case generation == f.highest:
		return true, nil
	}
	// Always as long, so that the new number covers the old one.
	if _, err := f.file.WriteAt(fmt.Appendf(nil, "%020d\n", generation), 0); err != nil {
		return false, fmt.Errorf("write the highest accepted plan: %w", err)
	}
	f.highest = generation
	return true, nil
}

// sync writes the accepted generation to disk. It is no part of accept, because jobs would start later for it: after a
// failure of the machine the bus has every plan that was followed.
func (f *fence) sync() error { return f.file.Sync() }
