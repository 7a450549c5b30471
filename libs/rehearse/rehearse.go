// Package rehearse asks admission and the planner what they would make of a job that is not submitted. It decides
// nothing, and nothing is published.
package rehearse

import (
	"context"
	"errors"
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Ask returns what would become of a job. The error is bus.ErrAway if one of the services does not answer.
func Ask(ctx context.Context, b *bus.Bus, c rpc.Candidate) (r rpc.Rehearsal, err error) {
	if r.Job, err = bus.Ask[rpc.Candidate, train.Job](ctx, b, rpc.CandidateSubject, c); err != nil || r.Job.State == train.StateRejected {
		return r, err
	}
	answer, err := bus.Ask[rpc.OutlookRequest, rpc.OutlookAnswer](ctx, b, rpc.OutlookSubject, rpc.OutlookRequest{Candidate: &r.Job})
	if err != nil {
		return r, err
	}
	if len(answer.Outlooks) != 1 || answer.Outlooks[0].Outlook == nil {
		return r, fmt.Errorf("the planner answers with %d outlooks, want 1: it has another version", len(answer.Outlooks))
	}
	r.Plan = answer.Outlooks[0].Outlook
	rates, err := bus.OpenKV(ctx, b, contract.Rates)
	if err != nil {
		return r, err
	}
	rate, err := rates.Get(ctx, contract.RatesKey)
	if errors.Is(err, bus.ErrNotFound) {
		return r, nil
	}
	r.Rates = rate.Value
	return r, err
}
