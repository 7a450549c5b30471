package profiler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// watchman judges each window of probes, and tells which links lose packets.
type watchman struct {
	bus   *bus.Bus
	lists *bus.KV[train.Pinglist]
	links *bus.KV[train.Link]
	log   *slog.Logger
	loss  *prometheus.GaugeVec

	mu     sync.Mutex
	probes *probes
	// judged is the last slot that was.
	judged int64
}

func newWatchman(ctx context.Context, b *bus.Bus, log *slog.Logger, metrics prometheus.Registerer) (*watchman, error) {
	w := &watchman{bus: b, log: log, probes: newProbes(), loss: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "switchyard_profiler_link_loss_ratio", Help: "Part of the packets that a degraded link of the network loses.",
	}, []string{"link"})}
	metrics.MustRegister(w.loss)
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
			w.probes.recall(e.Value)
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
	if w.probes.lists[train.NodeID(e.Key)] = e.Value; deleted {
		delete(w.probes.lists, train.NodeID(e.Key))
	}
}

func (w *watchman) seeCounts(m bus.Message) {
	c, err := event.Decode[event.ProbesCounted](m.Data)
	if err != nil || m.ParseErr != nil {
		w.log.Debug("counts of probes are not read", "subject", m.Subject, "error", errors.Join(err, m.ParseErr))
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Slot > w.judged {
		w.probes.counted(train.NodeID(m.Parsed.ID), c)
	}
}

const (
	// judgeEvery is how often it is looked whether a slot was reported, reportedBy how long after its end nobody is waited for any more.
	judgeEvery = 500 * time.Millisecond
	reportedBy = 13 * time.Second
)

// judge judges slot by slot.
func (w *watchman) judge(ctx context.Context) error {
	tick := time.NewTicker(judgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		turns, slot := w.next(time.Now())
		for _, t := range turns {
			if err := w.tell(ctx, t, slot); err != nil && ctx.Err() == nil {
				w.log.Warn("the state of a link is not told", "link", t.link.ID, "error", err)
			}
		}
	}
}

// next judges the next slot if it is over and reported.
func (w *watchman) next(now time.Time) ([]turn, int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := now.Truncate(train.ProbeSlot).Unix()/int64(train.ProbeSlot/time.Second) - 1
	if w.judged == 0 {
		w.judged = over // of what came before the start, a part may be missing
	}
	slot := w.judged + 1
	end := time.Unix((slot+1)*int64(train.ProbeSlot/time.Second), 0).UTC()
	if len(w.probes.lists) == 0 || slot > over || !w.probes.complete(slot) && now.Sub(end) < reportedBy {
		return nil, slot
	}
	w.judged = slot
	return w.probes.judge(slot, end), slot
}

// tell publishes what has turned, and keeps the record of the link.
func (w *watchman) tell(ctx context.Context, t turn, slot int64) error {
	l := t.link
	if t.news {
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
		w.log.Info("link has turned", "link", l.ID, "fact", fact, "loss", l.Loss, "confidence", l.Confidence, "probes", l.Probes)
	}
	if w.loss.WithLabelValues(l.ID).Set(l.Loss); !l.Degraded {
		w.loss.DeleteLabelValues(l.ID)
	}
	_, err := w.links.Modify(ctx, l.ID, func(known *train.Link) (bool, error) {
		changed := *known != l
		*known = l
		return changed, nil
	})
	return err
}
