package profiler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/profiler/linkhealth"
)

// linkMonitor judges each window of probes, and publishes which links lose or delay packets.
type linkMonitor struct {
	bus   *bus.Bus
	lists *bus.KV[train.Pinglist]
	links *bus.KV[train.Link]
	log   *slog.Logger
	loss  *prometheus.GaugeVec
	// unhealthy are the nodes whose probes cannot be judged.
	unhealthy *prometheus.GaugeVec
	delay     *prometheus.GaugeVec

	mu    sync.Mutex
	watch *linkhealth.Watch
}

func newLinkMonitor(ctx context.Context, b *bus.Bus, log *slog.Logger, metrics prometheus.Registerer) (*linkMonitor, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return promauto.With(metrics).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	w := &linkMonitor{
		bus: b, log: log, watch: linkhealth.New(),
		loss:      gauge("switchyard_profiler_link_loss_ratio", "Part of the packets that a degraded link of the network loses.", "link"),
		delay:     gauge("switchyard_profiler_link_delay_seconds", "How much longer than usual packets take over a slow link of the network.", "link"),
		unhealthy: gauge("switchyard_profiler_probe_node_ailing", "1 for a node whose probes cannot be judged: Silent, Stalled or ClockSkew.", "node", "why"),
	}
	if err := errors.Join(bus.Open(ctx, b, contract.Probes, &w.lists), bus.Open(ctx, b, contract.Links, &w.links)); err != nil {
		return nil, err
	}
	// A link that was degraded before a restart stays so until probes show otherwise.
	entries, err := w.links.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Value.Degraded {
			w.watch.Recall(e.Value)
		}
	}
	return w, nil
}

func (w *linkMonitor) run(ctx context.Context) error {
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error { return w.lists.Watch(ctx, w.onList, nil) })
	work.Go(func(ctx context.Context) error {
		return w.bus.Follow(ctx, event.StreamSamples, []string{"yard.probe.*.counted.v1"}, 0, w.onCounts)
	})
	work.Go(w.judge)
	return work.Wait()
}

func (w *linkMonitor) onList(e bus.Entry[train.Pinglist], deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := &e.Value
	if deleted {
		list = nil
	}
	w.watch.Use(train.NodeID(e.Key), list)
}

func (w *linkMonitor) onCounts(m bus.Message) {
	c, err := event.Decode[event.ProbesCounted](m.Data)
	if err != nil || m.ParseErr != nil {
		w.log.Debug("counts of probes ignored", "subject", m.Subject, "error", errors.Join(err, m.ParseErr))
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch.Counted(train.NodeID(m.Parsed.ID), c, time.Now())
}

// judgeInterval is how often the monitor checks whether a slot was reported.
const judgeInterval = 500 * time.Millisecond

// judge judges slot by slot. What could not be published is retried at the next tick.
func (w *linkMonitor) judge(ctx context.Context) error {
	var left unpublished
	var unhealthy []train.UnhealthyNode
	for range tick.After(ctx, judgeInterval) {
		w.mu.Lock()
		changes, slot, judged := w.watch.Next(time.Now())
		shown, before := w.watch.Links(), unhealthy
		if judged {
			unhealthy = w.watch.Unhealthy(slot)
		}
		w.mu.Unlock()
		if judged {
			w.logUnhealthy(before, unhealthy)
			w.show(ctx, slot, shown, unhealthy)
		}
		left = w.publishAll(ctx, left.add(changes, slot))
	}
	return nil
}

// publishAll publishes changes as far as the bus takes them in time, because the next slot must be judged.
func (w *linkMonitor) publishAll(ctx context.Context, changes unpublished) unpublished {
	within, cancel := context.WithTimeout(ctx, train.ProbeSlot/2)
	defer cancel()
	return changes.each(func(t change) error {
		err := w.publish(within, t.Transition, t.slot)
		if err != nil && !t.tried && ctx.Err() == nil {
			w.log.Warn("the state of a link is not published yet", "link", t.Link.ID, "error", err)
		}
		return err
	})
}

// logUnhealthy logs which nodes have become unhealthy or healthy.
func (w *linkMonitor) logUnhealthy(before, now []train.UnhealthyNode) {
	without := func(all, others []train.UnhealthyNode) []train.UnhealthyNode {
		return slices.DeleteFunc(slices.Clone(all), func(a train.UnhealthyNode) bool {
			return slices.ContainsFunc(others, func(o train.UnhealthyNode) bool { return o.Node == a.Node && o.Why == a.Why })
		})
	}
	for _, a := range without(now, before) {
		w.unhealthy.WithLabelValues(string(a.Node), string(a.Why)).Set(1)
		w.log.Warn("probes of a node cannot be judged", "node", a.Node, "why", a.Why, "behind_seconds", a.BehindSeconds)
	}
	for _, a := range without(before, now) {
		w.unhealthy.DeleteLabelValues(string(a.Node), string(a.Why))
		w.log.Info("probes of a node are judged again", "node", a.Node, "was", a.Why)
	}
}

// linksPerMessage is how many links are described in one message. With the nodes of a large cluster the message is
// still smaller than the bus allows.
const linksPerMessage = 500

// show publishes what a window showed of each link, and which nodes are unhealthy. It is for records and readers, so
// a failure is not retried.
func (w *linkMonitor) show(ctx context.Context, slot int64, links []train.LinkWindow, unhealthy []train.UnhealthyNode) {
	part := 0
	for some := range slices.Chunk(links, linksPerMessage) {
		within, cancel := context.WithTimeout(ctx, train.ProbeSlot/2)
		err := w.bus.Publish(within, event.Fact{
			Subject: event.JudgedSubject(part), Key: fmt.Sprintf("net/judged/%d/%d", slot, part), Body: event.LinksJudged{Slot: slot, Links: some, Ailing: unhealthy},
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			w.log.Warn("results of a window are lost", "slot", slot, "error", err)
			return
		}
		part, unhealthy = part+1, nil // the first part has them
	}
}

// unpublished are the changes that still have to be published, oldest first.
type unpublished []change

type change struct {
	linkhealth.Transition
	slot int64
	// tried is set if publishing failed before.
	tried bool
}

// add adds the changes of a slot. A new measurement replaces an unpublished older one of the same link, so the list
// stays short however long the bus is unreachable.
func (u unpublished) add(changes []linkhealth.Transition, slot int64) unpublished {
	for _, t := range changes {
		u = slices.DeleteFunc(u, func(old change) bool { return old.Link.ID == t.Link.ID && !old.Changed })
		u = append(u, change{Transition: t, slot: slot})
	}
	return u
}

// each publishes every change and returns those that failed. A link's later changes wait for its earlier ones.
func (u unpublished) each(publish func(change) error) unpublished {
	var left unpublished
	for _, t := range u {
		waits := slices.ContainsFunc(left, func(earlier change) bool { return earlier.Link.ID == t.Link.ID })
		if waits || publish(t) != nil {
			t.tried = t.tried || !waits
			left = append(left, t)
		}
	}
	return left
}

// publish publishes a change, and updates the record of the link.
func (w *linkMonitor) publish(ctx context.Context, t linkhealth.Transition, slot int64) error {
	l := t.Link
	if t.Changed {
		fact, body := event.FactDegraded, any(event.LinkDegraded{Link: l})
		if !l.Degraded {
			fact, body = event.FactRecovered, event.LinkRecovered{Link: l}
		}
		err := w.bus.Publish(ctx, event.Fact{
			Subject: event.Subject{Entity: "net", ID: l.ID, Fact: fact, Version: 1},
			Key:     fmt.Sprintf("net/%s/%s/%d", l.ID, fact, slot), Body: body,
		})
		if err != nil {
			return err
		}
		w.log.Info("link state changed", "link", l.ID, "fact", fact, "kind", l.Kind, "trouble", l.Trouble(), "confidence", l.Confidence, "probes", l.Probes)
	}
	w.loss.DeleteLabelValues(l.ID)
	w.delay.DeleteLabelValues(l.ID)
	switch {
	case l.Degraded && l.Kind == train.LinkIsSlow:
		w.delay.WithLabelValues(l.ID).Set(l.DelaySeconds)
	case l.Degraded:
		w.loss.WithLabelValues(l.ID).Set(l.Loss)
	}
	return w.links.Put(ctx, l.ID, l)
}
