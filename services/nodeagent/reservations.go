package nodeagent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// reservations compares what jobs use of shared devices with their shares, and publishes each job that has outgrown
// its share. The use is what the driver sees, which knows the memory of processes, or what the job's code reports,
// whichever is larger. What follows is up to the planner.
type reservations struct {
	node    train.NodeID
	live    func() []train.Attempt
	publish func(context.Context, ...event.Fact) error
	log     *slog.Logger
	wake    tick.Signal

	mu sync.Mutex
	// used is the largest measured use; published is the memory that a fact named as enough.
	used, published map[claim]unit.Bytes
}

// claim is an attempt's share of a device.
type claim struct {
	job     train.JobID
	attempt int
	device  train.DeviceID
}

func newReservations(node train.NodeID, live func() []train.Attempt, publish func(context.Context, ...event.Fact) error, log *slog.Logger) *reservations {
	return &reservations{
		node: node, live: live, publish: publish, log: log, wake: tick.NewSignal(),
		used: map[claim]unit.Bytes{}, published: map[claim]unit.Bytes{},
	}
}

// reported takes the memory that the code of an attempt reports for each of its devices. It returns the largest known
// use of one of them, including the driver's context.
func (r *reservations) reported(a train.Attempt, memory unit.Bytes) unit.Bytes {
	most := memory
	for _, d := range a.DevicesOn(r.node) {
		most = max(most, r.observe(claim{a.Job, a.Number, d}, memory))
	}
	return most
}

// measured takes the memory that the processes of attempts hold on devices. Estimates are ignored.
func (r *reservations) measured(uses []event.Use) {
	for _, u := range uses {
		if u.Component == event.ComponentGPU && !u.Estimated {
			r.observe(claim{u.Job, u.Attempt, u.Device}, u.MemoryBytes)
		}
	}
}

// observe returns the largest use seen so far.
func (r *reservations) observe(c claim, memory unit.Bytes) unit.Bytes {
	r.mu.Lock()
	defer r.mu.Unlock()
	if memory <= r.used[c] {
		return r.used[c]
	}
	r.used[c] = memory
	r.wake.Send()
	return memory
}

// retryInterval is how soon a failed publication is retried.
const retryInterval = 2 * time.Second

// run publishes outgrown shares until ctx ends.
func (r *reservations) run(ctx context.Context, devices func() []gpu.Device) error {
	ticker := time.NewTicker(retryInterval)
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
				r.log.Debug("outgrown share not published yet", "job", c.job, "error", err)
				continue
			}
			r.log.Warn("a job uses more of a device than its share", "job", c.job, "attempt", c.attempt, "device", c.device, "part", found.Part.String(), "used", found.Used.String())
			r.mu.Lock()
			r.published[c] = found.Needs
			r.mu.Unlock()
		}
	}
}

// outgrown returns what is to be published, and forgets attempts that have ended.
func (r *reservations) outgrown(devices []gpu.Device) map[claim]event.Outgrew {
	sizes := map[train.DeviceID]unit.Bytes{}
	for _, d := range devices {
		sizes[d.ID()] = d.Memory - d.Memory%unit.MiB // shares are whole MiB: one more would exceed the device
	}
	live := r.live()
	r.mu.Lock()
	defer r.mu.Unlock()
	facts := map[claim]event.Outgrew{}
	used, published := map[claim]unit.Bytes{}, map[claim]unit.Bytes{}
	for _, a := range live {
		for _, d := range a.Devices {
			c := claim{a.Job, a.Number, d}
			used[c], published[c] = r.used[c], r.published[c]
			// No job uses more than the device has.
			if most := min(used[c], sizes[d]); a.Memory > 0 && most > max(a.Memory, published[c]) {
				facts[c] = event.Outgrew{
					Attempt: a.Number, Node: r.node, Device: d, Part: a.Memory, Used: most, Needs: min(withMargin(most), sizes[d]),
				}
			}
		}
	}
	r.used, r.published = used, published
	return facts
}

// withMargin returns what to reserve for a job with this use: a tenth more, in whole MiB. It is published again only
// when the job uses more than this.
func withMargin(used unit.Bytes) unit.Bytes {
	return unit.Bytes((used + used/10).MiB()) * unit.MiB
}

func outgrewFact(c claim, body event.Outgrew) event.Fact {
	return event.JobFact(c.job, event.FactOutgrew, fmt.Sprintf("attempt/%d/outgrew/%s/%d", c.attempt, c.device, body.Needs.MiB()), body)
}
