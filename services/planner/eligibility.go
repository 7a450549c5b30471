package planner

import (
	"context"
	"errors"
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/eligible"
)

// orders folds the requests of operators, and what is set aside, into records of what keeps jobs off nodes. It reads
// them in the order of their stream; a record knows the newest fact that it follows, so each counts once.
type orders struct {
	bus     *bus.Bus
	cache   *cache
	records *bus.KV[train.Eligibility]
	nodes   *bus.KV[train.Node]
}

func newOrders(ctx context.Context, b *bus.Bus, known *cache) (*orders, error) {
	o := &orders{bus: b, cache: known}
	return o, errors.Join(bus.Open(ctx, b, contract.Eligibility, &o.records), bus.Open(ctx, b, contract.Nodes, &o.nodes))
}

// run works until ctx ends.
func (o *orders) run(ctx context.Context) error {
	return o.bus.Consume(ctx, bus.Consumer{Name: "planner-nodes", Stream: event.StreamNodes, Filters: []string{"yard.node.>"}, Handle: o.handle})
}

func (o *orders) handle(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	r, asked, err := request(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", bus.ErrPoison, err)
	}
	if !asked {
		return nil, nil
	}
	if r.Fact == event.FactRemoveRequested {
		if removed, err := o.remove(ctx, m.Parsed.ID); removed || err != nil {
			return nil, err
		}
	}
	_, err = o.records.Modify(ctx, m.Parsed.ID, func(e *train.Eligibility) (bool, error) { return eligible.Follow(e, r), nil })
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", m.Subject, err)
	}
	return nil, nil
}

// remove deletes the record of a node, and that of the orders about it, unless its agent is heard of or a job has
// devices there.
func (o *orders) remove(ctx context.Context, id string) (removed bool, err error) {
	if !o.cache.ready() {
		return false, errUnread
	}
	e, err := o.nodes.Get(ctx, id)
	switch {
	case errors.Is(err, bus.ErrNotFound): // what follows was left undone, if anything was
	case err != nil:
		return false, fmt.Errorf("remove node %s: %w", id, err)
	case !o.cache.abandoned(e.Value):
		return false, nil
	default:
		err := o.nodes.Delete(ctx, id, e.Revision)
		if errors.Is(err, bus.ErrConflict) {
			return false, nil // its agent has just written
		}
		if err != nil {
			return false, fmt.Errorf("remove node %s: %w", id, err)
		}
	}
	if err := o.records.Remove(ctx, id); err != nil {
		return false, fmt.Errorf("forget the orders about node %s: %w", id, err)
	}
	return true, nil
}

// request reads a request about a node; asked is false for other facts of nodes.
func request(m bus.Message) (r eligible.Request, asked bool, err error) {
	if m.ParseErr != nil {
		return r, false, m.ParseErr
	}
	r = eligible.Request{Fact: m.Parsed.Fact, At: m.Time, Sequence: m.Sequence}
	switch m.Parsed.Fact {
	case event.FactSetAside:
		b, err := event.Decode[event.NodeSetAside](m.Data)
		r.Devices, r.Until, r.Why = b.Devices, b.Until, b.Reason
		return r, true, err
	case event.FactCordonRequested, event.FactDrainRequested, event.FactResumeRequested, event.FactRemoveRequested:
		b, err := event.Decode[event.DrainRequested](m.Data) // the others say no more
		if err == nil {
			_, err = bus.Asked(m, &b)
		}
		r.NodeRequest, r.Now = b.NodeRequest, b.Now
		return r, true, err
	}
	return r, false, nil
}

// watchLosses works until ctx ends. It sets aside nodes and devices on which different jobs are lost again and again.
func (o *orders) watchLosses(ctx context.Context) error {
	job := func(fact string) string {
		return event.Subject{Entity: "job", ID: "*", Fact: fact, Version: 1}.String()
	}
	return o.bus.Consume(ctx, bus.Consumer{
		Name: "planner-losses", Stream: event.StreamJobs, Filters: []string{job(event.FactAttemptLost), job(event.FactFailed)}, Handle: o.lost,
	})
}

func (o *orders) lost(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	if m.ParseErr != nil {
		return nil, fmt.Errorf("%w: %w", bus.ErrPoison, m.ParseErr)
	}
	b, err := event.Decode[event.AttemptLost](m.Data) // a failure has the same keys
	if err != nil {
		return nil, fmt.Errorf("%w: %w", bus.ErrPoison, err)
	}
	if b.Retry > 0 || !b.Exit.Outside() {
		return nil, nil
	}
	if !o.cache.ready() {
		return nil, errUnread
	}
	loss := train.NodeLoss{Job: train.JobID(m.Parsed.ID), Attempt: b.Attempt, ClaimedAt: b.ClaimedAt, At: m.Time, How: b.Exit.Words()}
	for _, p := range b.Places {
		loss.Devices = p.Devices
		_, err := o.records.Modify(ctx, string(p.Node), func(e *train.Eligibility) (bool, error) { return eligible.Lose(e, loss), nil })
		if err != nil {
			return nil, fmt.Errorf("record the loss of %s on node %s: %w", loss.Job, p.Node, err)
		}
	}
	return o.judge(ctx, loss, b.Places)
}

// errUnread postpones a loss.
var errUnread = errors.New("the nodes have not been read yet")

// judge returns what a recorded loss sets aside.
func (o *orders) judge(ctx context.Context, loss train.NodeLoss, places []train.Part) ([]event.Fact, error) {
	entries, err := o.records.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the losses of all nodes: %w", err)
	}
	known := map[train.NodeID]train.Eligibility{}
	for _, e := range entries {
		known[train.NodeID(e.Key)] = e.Value
	}
	var facts []event.Fact
	for _, p := range places {
		n, count := o.cache.node(p.Node)
		v, aside := eligible.Judge(known, n, count, loss)
		if !aside {
			continue
		}
		body := event.NodeSetAside{Devices: v.Devices, Until: v.Until, Reason: v.Why()}
		for _, l := range v.Losses {
			body.Jobs = append(body.Jobs, l.Job)
		}
		facts = append(facts, event.Fact{
			Subject: event.NodeSubject(p.Node, event.FactSetAside), Key: fmt.Sprintf("node/%s/set_aside/%s/%d", p.Node, loss.Job, loss.Attempt),
			Time: loss.At, Body: body,
		})
	}
	return facts, nil
}
