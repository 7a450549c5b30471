package nodeagent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// reservations holds what jobs use of devices that they share against their parts, and tells of each that has outgrown its part. What a job uses is seen by the
// driver, which knows the memory of processes, or told by its own code; the larger counts. What follows from it is the planner's to say.
type reservations struct {
	node    train.NodeID
	live    func() []train.Attempt
	publish func(context.Context, ...event.Fact) error
	log     *slog.Logger
	// wake has room for one signal that there may be something to tell.
	wake chan struct{}

	mu sync.Mutex
	// used is the most that was measured, told what a fact has said to be enough.
	used, told map[claim]unit.Bytes
}

// claim is an attempt's part of a device.
type claim struct {
	job     train.JobID
	attempt int
	device  train.DeviceID
}

func newReservations(node train.NodeID, live func() []train.Attempt, publish func(context.Context, ...event.Fact) error, log *slog.Logger) *reservations {
	return &reservations{
		node: node, live: live, publish: publish, log: log, wake: make(chan struct{}, 1),
		used: map[claim]unit.Bytes{}, told: map[claim]unit.Bytes{},
	}
}

// reported takes what the code of an attempt says to use of each of its devices, and gives the most that it was seen to use of one, its context included.
func (r *reservations) reported(a train.Attempt, memory unit.Bytes) unit.Bytes {
	most := memory
	for _, d := range a.DevicesOn(r.node) {
		most = max(most, r.see(claim{a.Job, a.Number, d}, memory))
	}
	return most
}

// measured takes what the processes of attempts were seen to hold of devices. What is a guess is left out.
func (r *reservations) measured(uses []event.Use) {
	for _, u := range uses {
		if u.Component == event.ComponentGPU && !u.Estimated {
			r.see(claim{u.Job, u.Attempt, u.Device}, u.MemoryBytes)
		}
	}
}

// see gives the most that was seen so far.
func (r *reservations) see(c claim, memory unit.Bytes) unit.Bytes {
	r.mu.Lock()
	defer r.mu.Unlock()
	if memory <= r.used[c] {
		return r.used[c]
	}
	r.used[c] = memory
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return memory
}

// tellAgain is how soon what could not be told is tried again.
const tellAgain = 2 * time.Second

// run tells of outgrown parts of devices until ctx ends.
func (r *reservations) run(ctx context.Context, devices func() []gpu.Device) error {
	ticker := time.NewTicker(tellAgain)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-ticker.C:
		}
		for c, found := range r.outgrown(devices()) {
			if err := r.publish(ctx, outgrewFact(c, found)); err != nil {
				r.log.Debug("outgrown part not told yet", "job", c.job, "error", err)
				continue
			}
			r.log.Warn("a job uses more of a device than its part", "job", c.job, "attempt", c.attempt, "device", c.device, "part", found.Part.String(), "used", found.Used.String())
			r.mu.Lock()
			r.told[c] = found.Needs
			r.mu.Unlock()
		}
	}
}

// outgrown gives what is to be told, and forgets attempts that have ended.
func (r *reservations) outgrown(devices []gpu.Device) map[claim]event.Outgrew {
	sizes := map[train.DeviceID]unit.Bytes{}
	for _, d := range devices {
		sizes[d.ID()] = d.Memory - d.Memory%unit.MiB // parts are whole MiB: the next one would be more than there is
	}
	live := r.live()
	r.mu.Lock()
	defer r.mu.Unlock()
	facts := map[claim]event.Outgrew{}
	used, told := map[claim]unit.Bytes{}, map[claim]unit.Bytes{}
	for _, a := range live {
		for _, d := range a.Devices {
			c := claim{a.Job, a.Number, d}
			used[c], told[c] = r.used[c], r.told[c]
			// Nobody uses more than there is.
			if most := min(used[c], sizes[d]); a.Memory > 0 && most > max(a.Memory, told[c]) {
				facts[c] = event.Outgrew{
					Attempt: a.Number, Node: r.node, Device: d, Part: a.Memory, Used: most, Needs: min(withMargin(most), sizes[d]),
				}
			}
		}
	}
	r.used, r.told = used, told
	return facts
}

// withMargin is what is to be reserved for a job that was seen to use so much: a tenth more, in whole MiB. It is told again only when it uses more than this.
func withMargin(used unit.Bytes) unit.Bytes {
	return unit.Bytes((used + used/10).MiB()) * unit.MiB
}

func outgrewFact(c claim, body event.Outgrew) event.Fact {
	return event.JobFact(c.job, event.FactOutgrew, fmt.Sprintf("attempt/%d/outgrew/%s/%d", c.attempt, c.device, body.Needs.MiB()), body)
}
