package profiler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/profiler/linkhealth"
)

// watchman judges each window of probes, and tells which links lose or delay packets.
type watchman struct {
	bus   *bus.Bus
	lists *bus.KV[train.Pinglist]
	links *bus.KV[train.Link]
	log   *slog.Logger
	loss  *prometheus.GaugeVec
	// ailing are the nodes of which nothing can be judged.
	ailing *prometheus.GaugeVec
	delay  *prometheus.GaugeVec

	mu    sync.Mutex
	watch *linkhealth.Watch
}

func newWatchman(ctx context.Context, b *bus.Bus, log *slog.Logger, metrics prometheus.Registerer) (*watchman, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	w := &watchman{
		bus: b, log: log, watch: linkhealth.New(),
		loss:   gauge("switchyard_profiler_link_loss_ratio", "Part of the packets that a degraded link of the network loses.", "link"),
		delay:  gauge("switchyard_profiler_link_delay_seconds", "How much longer than usual packets take over a slow link of the network.", "link"),
		ailing: gauge("switchyard_profiler_probe_node_ailing", "1 for a node whose probes say nothing of links: Silent, Stalled or ClockSkew.", "node", "why"),
	}
	metrics.MustRegister(w.loss, w.delay, w.ailing)
	var errs [2]error
	w.lists, errs[0] = bus.OpenKV[train.Pinglist](ctx, b, event.BucketProbes)
	w.links, errs[1] = bus.OpenKV[train.Link](ctx, b, event.BucketLinks)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	// What was degraded before a restart stays so until probes say otherwise.
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

// run judges until ctx ends.
func (w *watchman) run(ctx context.Context) error {
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error { return w.lists.Watch(ctx, w.seeList, nil) })
	work.Go(func(ctx context.Context) error {
		return w.bus.Follow(ctx, event.StreamSamples, []string{"yard.probe.*.counted.v1"}, 0, w.seeCounts)
	})
	work.Go(w.judge)
	return work.Wait()
}

func (w *watchman) seeList(e bus.Entry[train.Pinglist], deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := &e.Value
	if deleted {
		list = nil
	}
	w.watch.Use(train.NodeID(e.Key), list)
}

func (w *watchman) seeCounts(m bus.Message) {
	c, err := event.Decode[event.ProbesCounted](m.Data)
	if err != nil || m.ParseErr != nil {
		w.log.Debug("counts of probes are not read", "subject", m.Subject, "error", errors.Join(err, m.ParseErr))
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch.Counted(train.NodeID(m.Parsed.ID), c, time.Now())
}

// judgeEvery is how often it is looked whether a slot was reported.
const judgeEvery = 500 * time.Millisecond

// judge judges slot by slot. What could not be told is told again at the next tick.
func (w *watchman) judge(ctx context.Context) error {
	tick := time.NewTicker(judgeEvery)
	defer tick.Stop()
	var left untold
	var ailing []train.AilingNode
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		w.mu.Lock()
		turns, slot, judged := w.watch.Next(time.Now())
		shown, before := w.watch.Links(), ailing
		if judged {
			ailing = w.watch.Ailing(slot)
		}
		w.mu.Unlock()
		if judged {
			w.tellAiling(before, ailing)
			w.show(ctx, slot, shown, ailing)
		}
		left = w.tellAll(ctx, left.add(turns, slot))
	}
}

// tellAll tells of turns, as far as the bus takes them in time: the next slot must be judged.
func (w *watchman) tellAll(ctx context.Context, turns untold) untold {
	within, cancel := context.WithTimeout(ctx, train.ProbeSlot/2)
	defer cancel()
	return turns.each(func(t turn) error {
		err := w.tell(within, t.Turn, t.slot)
		if err != nil && !t.tried && ctx.Err() == nil {
			w.log.Warn("the state of a link is not told yet", "link", t.Link.ID, "error", err)
		}
		return err
	})
}

// tellAiling says which nodes have come to ail, or do so no more.
func (w *watchman) tellAiling(before, now []train.AilingNode) {
	without := func(all, others []train.AilingNode) []train.AilingNode {
		return slices.DeleteFunc(slices.Clone(all), func(a train.AilingNode) bool {
			return slices.ContainsFunc(others, func(o train.AilingNode) bool { return o.Node == a.Node && o.Why == a.Why })
		})
	}
	for _, a := range without(now, before) {
		w.ailing.WithLabelValues(string(a.Node), string(a.Why)).Set(1)
		w.log.Warn("probes of a node say nothing of links", "node", a.Node, "why", a.Why, "behind_seconds", a.BehindSeconds)
	}
	for _, a := range without(before, now) {
		w.ailing.DeleteLabelValues(string(a.Node), string(a.Why))
		w.log.Info("probes of a node are judged again", "node", a.Node, "was", a.Why)
	}
}

// shownTogether is how many links are told of in one message: with the nodes of a large cluster it is still smaller than what the bus takes.
const shownTogether = 500

// show publishes what a window showed of each link, and which nodes ail. That is for records and readers: what is not told now is not told later.
func (w *watchman) show(ctx context.Context, slot int64, links []train.LinkWindow, ailing []train.AilingNode) {
	part := 0
	for some := range slices.Chunk(links, shownTogether) {
		within, cancel := context.WithTimeout(ctx, train.ProbeSlot/2)
		err := w.bus.Publish(within, event.Fact{
			Subject: event.JudgedSubject(part), Key: fmt.Sprintf("net/judged/%d/%d", slot, part), Body: event.LinksJudged{Slot: slot, Links: some, Ailing: ailing},
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			w.log.Warn("what a window showed is lost", "slot", slot, "error", err)
			return
		}
		part, ailing = part+1, nil // which the first part has told
	}
}

// untold are the turns that are still to be told, oldest first.
type untold []turn

type turn struct {
	linkhealth.Turn
	slot int64
	// tried is set where it could not be told before.
	tried bool
}

// add takes up the turns of a slot. What they measure anew replaces what was measured before, so that little is kept however long nothing can be told.
func (u untold) add(turns []linkhealth.Turn, slot int64) untold {
	for _, t := range turns {
		u = slices.DeleteFunc(u, func(old turn) bool { return old.Link.ID == t.Link.ID && !old.News })
		u = append(u, turn{Turn: t, slot: slot})
	}
	return u
}

// each tells every turn and gives those that could not be told. A link's later turns wait for its earlier ones.
func (u untold) each(tell func(turn) error) untold {
	var left untold
	for _, t := range u {
		waits := slices.ContainsFunc(left, func(earlier turn) bool { return earlier.Link.ID == t.Link.ID })
		if waits || tell(t) != nil {
			t.tried = t.tried || !waits
			left = append(left, t)
		}
	}
	return left
}

// tell publishes what has turned, and keeps the record of the link.
func (w *watchman) tell(ctx context.Context, t linkhealth.Turn, slot int64) error {
	l := t.Link
	if t.News {
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
		w.log.Info("link has turned", "link", l.ID, "fact", fact, "kind", l.Kind, "trouble", l.Trouble(), "confidence", l.Confidence, "probes", l.Probes)
	}
	w.loss.DeleteLabelValues(l.ID)
	w.delay.DeleteLabelValues(l.ID)
	switch {
	case l.Degraded && l.Kind == train.LinkIsSlow:
		w.delay.WithLabelValues(l.ID).Set(l.DelaySeconds)
	case l.Degraded:
		w.loss.WithLabelValues(l.ID).Set(l.Loss)
	}
	_, err := w.links.Modify(ctx, l.ID, func(known *train.Link) (bool, error) {
		changed := !reflect.DeepEqual(*known, l)
		*known = l
		return changed, nil
	})
	return err
}
