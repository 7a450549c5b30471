package planner

import (
	"context"
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/eligible"
)

// orders folds the requests of operators into records of what keeps jobs off nodes. It reads them in the order of
// their stream; a record knows the newest request that it follows, so each counts once.
type orders struct {
	bus     *bus.Bus
	records *bus.KV[train.Eligibility]
}

func newOrders(ctx context.Context, b *bus.Bus) (*orders, error) {
	records, err := bus.OpenKV(ctx, b, contract.Eligibility)
	return &orders{b, records}, err
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
	_, err = o.records.Modify(ctx, m.Parsed.ID, func(e *train.Eligibility) (bool, error) { return eligible.Follow(e, r), nil })
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", m.Subject, err)
	}
	return nil, nil
}

// request reads a request about a node; asked is false for other facts of nodes.
func request(m bus.Message) (r eligible.Request, asked bool, err error) {
	if m.ParseErr != nil {
		return r, false, m.ParseErr
	}
	r = eligible.Request{Fact: m.Parsed.Fact, At: m.Time, Sequence: m.Sequence}
	switch m.Parsed.Fact {
	case event.FactCordonRequested, event.FactDrainRequested, event.FactResumeRequested:
		b, err := event.Decode[event.DrainRequested](m.Data) // the others say no more
		r.NodeRequest, r.Now = b.NodeRequest, b.Now
		return r, true, err
	}
	return r, false, nil
}
