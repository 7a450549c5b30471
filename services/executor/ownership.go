package executor

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// ownerInterval is how often an executor refreshes the record that it acts for its machine.
const ownerInterval = 10 * time.Second

// ownership is the record that this executor acts for its machine. The records of attempts belong to a machine by its
// name, their processes and files to a data folder: the executor of another folder would find that all attempts have
// vanished. It is no lease, because it must outlive a time without the bus, and an executor that is started again:
// nobody else could take over the processes.
//
// A record that cannot be written keeps no executor from its work. The zero value is that of pods: run.Exclusive lets
// one executor at a time act for them.
type ownership struct {
	run.Ownership[contract.ExecutorOwner]
	machine  train.NodeID
	revision uint64
	// sure is when the bus last had no other owner, by the wall clock, which goes on while a machine sleeps.
	sure atomic.Int64
}

// own waits until this executor may act for its machine.
func (s *Service) own(ctx context.Context, p run.Process, b *bus.Bus) (*ownership, error) {
	if s.config.Backend == settings.BackendKubernetes {
		return &ownership{}, nil
	}
	mine, err := run.OwnerOf(p.Common)
	if err != nil {
		return nil, err
	}
	records, err := bus.OpenKV(ctx, b, contract.Executors)
	if err != nil {
		return nil, err
	}
	o := &ownership{machine: p.Common.NodeID(), Ownership: run.Ownership[contract.ExecutorOwner]{
		Records: records, Key: string(p.Common.NodeID()), Mine: mine, Refresh: ownerInterval,
		Of: func(r contract.ExecutorOwner) (train.Owner, time.Time) { return r.Owner, r.SeenAt },
	}}
	for {
		e, err := o.Await(ctx, func(other train.Owner) { p.StandBy("another executor", other) })
		if err != nil {
			return nil, err
		}
		o.revision = e.Revision
		if err = o.write(ctx); errors.Is(err, bus.ErrConflict) {
			continue // another one was first
		}
		if err != nil {
			p.Log.Warn("the bus does not know that this executor acts for its machine", "error", err)
		}
		p.Owns()
		return o, nil
	}
}

// write refreshes the record, unless it has changed.
func (o *ownership) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	revision, err := o.Records.Swap(ctx, o.Key, contract.ExecutorOwner{Machine: o.machine, Owner: o.Mine, SeenAt: time.Now().UTC()}, o.revision)
	if err == nil {
		o.revision = revision
		o.sure.Store(time.Now().UnixNano())
	}
	return err
}

// keep refreshes the record until ctx ends. It returns run.ErrTaken if another executor has taken over.
func (o *ownership) keep(ctx context.Context) error {
	if o.Records == nil {
		return nil
	}
	for range tick.After(ctx, ownerInterval) {
		if o.write(ctx) == nil {
			continue
		}
		e, err := o.Records.Get(ctx, o.Key)
		switch {
		case err == nil && o.Foreign(e.Value):
			return run.ErrTaken
		case err == nil, errors.Is(err, bus.ErrNotFound), errors.Is(err, bus.ErrPoison):
			o.revision = e.Revision
			o.sure.Store(time.Now().UnixNano())
		}
	}
	return nil
}

// holds reports whether no other executor can have taken over: it would have waited for run.OwnerLost. An executor that
// was suspended for longer first looks at the record.
func (o *ownership) holds() bool {
	since := o.sure.Load()
	return since == 0 || time.Now().UnixNano()-since < int64(run.OwnerLost)
}
