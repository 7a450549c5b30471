package system

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/register"
	"github.com/switchyard-dl/switchyard/test/chaos"
)

// world reads what the bus and the machine say. What cannot be read is missing from it, which the judge finds.
func (s *storm) world() chaos.World {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	w := chaos.World{Accounts: map[train.JobID]int{}, Unhandled: map[string]time.Duration{}, Unready: s.unready(), Processes: s.trainers()}
	read := func(stream string, filters []string, f func(bus.Message)) {
		if err := s.bus.Stored(ctx, stream, filters, time.Time{}, f); err != nil {
			w.Unready["stream "+stream] = err.Error()
		}
	}
	read(event.StreamJobs, nil, func(m bus.Message) {
		f := chaos.Fact{Job: train.JobID(m.Parsed.ID), Fact: register.Fact{Name: m.Parsed.Fact, Time: m.Time, Sequence: m.Sequence}}
		if kind, known := event.Find(m.Parsed); known {
			f.Body, _ = event.DecodeBody(kind, m.Data)
			if kind.Publisher == event.Anyone { // whose clock counts for nothing
				f.Time = m.Stored
			}
		}
		w.Facts = append(w.Facts, f)
	})
	read(event.StreamPlans, nil, func(m bus.Message) {
		if p, err := event.Decode[event.PlanDecided](m.Data); err == nil {
			w.Plans = append(w.Plans, p.Generation)
		}
	})
	read(event.StreamEnergy, nil, func(m bus.Message) { w.Accounts[train.JobID(m.Parsed.ID)]++ })
	read(event.StreamSamples, []string{"yard.energy.>"}, func(m bus.Message) {
		if i, err := event.Decode[event.Measured](m.Data); err == nil {
			w.Intervals = append(w.Intervals, chaos.Interval{Node: i.Node, Boot: i.BootID, Sequence: i.Sequence, From: i.From, To: i.To})
		}
	})
	read(event.StreamPoison, nil, func(m bus.Message) {
		p, _ := event.Decode[event.Poisoned](m.Data)
		w.Poison = append(w.Poison, p.Consumer+": "+p.Subject+": "+p.Reason)
	})
	w.Register, w.Attempts = records(ctx, s.cluster, contract.Jobs), records(ctx, s.cluster, contract.Attempts)
	if kv, err := bus.OpenKV(ctx, s.bus, contract.Books); err == nil {
		books, _ := kv.List(ctx, "node.*")
		for _, e := range books {
			w.Books = append(w.Books, e.Value)
		}
	}
	s.consumers(ctx, &w)
	return w
}

// records reads a bucket of which each key is a job.
func records[T any](ctx context.Context, c *cluster, bucket contract.Bucket[T]) map[train.JobID]T {
	all := map[train.JobID]T{}
	if kv, err := bus.OpenKV(ctx, c.bus, bucket); err == nil {
		entries, _ := kv.List(ctx)
		for _, e := range entries {
			all[train.JobID(e.Key)] = e.Value
		}
	}
	return all
}

// consumers looks at the durable consumers of all streams, and at the first and last message of that of jobs.
func (s *storm) consumers(ctx context.Context, w *chaos.World) {
	js := s.js
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		if info.Config.Name == event.StreamJobs {
			w.First, w.Last = info.State.FirstSeq, info.State.LastSeq
		}
		stream, err := js.Stream(ctx, info.Config.Name)
		if err != nil {
			w.Unready["stream "+info.Config.Name] = err.Error()
			continue
		}
		list := stream.ListConsumers(ctx)
		for c := range list.Info() {
			if n := c.NumPending + uint64(c.NumAckPending); n > 0 && c.Config.Durable != "" && !strings.HasSuffix(c.Name, "-place") {
				if stored, err := oldest(ctx, stream, c); err != nil {
					w.Unready["consumer "+c.Name] = err.Error()
				} else if !stored.IsZero() {
					w.Unhandled[c.Name] = time.Since(stored)
				}
			}
		}
	}
	if err := streams.Err(); err != nil {
		w.Unready["streams"] = err.Error()
	}
}

// oldest is when the oldest message was stored that a consumer has not handled; zero if it is gone.
func oldest(ctx context.Context, stream jetstream.Stream, c *jetstream.ConsumerInfo) (stored time.Time, err error) {
	filters := c.Config.FilterSubjects
	if len(filters) == 0 {
		filters = []string{cmp.Or(c.Config.FilterSubject, ">")}
	}
	for _, filter := range filters {
		m, err := stream.GetMsg(ctx, c.AckFloor.Stream+1, jetstream.WithGetMsgSubject(filter))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return stored, err
		}
		if stored.IsZero() || m.Time.Before(stored) {
			stored = m.Time
		}
	}
	return stored, nil
}
