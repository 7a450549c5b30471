package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
	"github.com/switchyard-dl/switchyard/services/admission/register"
)

// edit decides on a request to change the spec of a job. The record has the answer before the fact tells it: each
// request is checked against the spec that the one before has left. A request that comes again gets the answer that
// the record has.
func (d *handler) edit(ctx context.Context, id train.JobID, m bus.Message) ([]event.Fact, error) {
	kind, known := event.Find(m.Parsed)
	if !known {
		return nil, fmt.Errorf("%w: UnknownFact: %s", bus.ErrPoison, m.Subject)
	}
	body, reasons := event.DecodeRequest(kind, m.Data)
	request, is := body.(*event.EditRequested)
	if !is {
		return nil, fmt.Errorf("%w: InvalidBody: %T", bus.ErrPoison, body)
	}
	if _, err := bus.Asked(m, body); err != nil {
		return nil, err
	}
	if e, err := d.record(ctx, id); err == nil && e.Value.State == train.StateSubmitted {
		// The verdict is stored after this request, and its fact has the whole spec: the request comes again behind it.
		return []event.Fact{passedOn(m, id, fmt.Sprintf("edit/again/%d", m.Sequence))}, nil
	}
	decided := event.EditDecided{Request: m.Sequence, ID: request.ID, By: request.By, Reason: request.Reason}
	err := d.store(ctx, id, m, func(job train.Job) (register.Fact, error) {
		var err error
		if decided.Edit, decided.Refused, err = d.changes(ctx, job, request.Edit, reasons, m); err != nil {
			return register.Fact{}, err
		}
		return register.Fact{Name: event.FactEditDecided, Time: m.Stored, Sequence: m.Sequence, Body: &decided}, nil
	})
	if err != nil {
		return nil, err
	}
	answer := event.JobFact(id, event.FactEditDecided, fmt.Sprintf("edited/%d", m.Sequence), decided)
	answer.Time = m.Stored // as in the record
	if len(decided.Refused) > 0 {
		return []event.Fact{answer}, nil
	}
	members, err := d.unfold(ctx, id, m)
	return append(members, answer), err
}

// changes returns what changes, or why nothing does.
func (d *handler) changes(ctx context.Context, job train.Job, edit train.Edit, reasons []train.Reason, m bus.Message) (train.Edit, []train.Reason, error) {
	if i := slices.IndexFunc(job.Edits, func(e train.Edited) bool { return e.Request == m.Sequence }); i >= 0 {
		reasons = job.Edits[i].Refused
	} else if len(reasons) == 0 {
		var err error
		if reasons, err = d.checkEdit(ctx, job, edit, m.Stored); err != nil {
			return edit, nil, err
		}
	}
	if len(reasons) > 0 {
		return train.Edit{}, reasons, nil
	}
	return edit, nil, nil
}

func (d *handler) checkEdit(ctx context.Context, job train.Job, edit train.Edit, at time.Time) ([]train.Reason, error) {
	experiment, err := d.experimentOf(ctx, job.ID)
	if err != nil {
		return nil, err
	}
	if experiment != "" {
		return []train.Reason{{Code: "IsTrial", Message: "the job is a trial, and experiment " + experiment + " decides about it"}}, nil
	}
	owner := fit.Identity{User: job.Spec.User, Tenant: job.Spec.Tenant, UID: job.Spec.UID, TrustBodies: d.who.TrustBodies}
	who, where, err := d.around(ctx, job.ID, job.Spec, owner, at)
	where.Admitted = true
	return append(fit.CheckEdit(job, edit, who, where, d.folders.resolve(job.ID, job.Spec)), tooLarge(job.Spec, edit)...), err
}

// tooLarge refuses a spec for which a fact has no room.
func tooLarge(spec train.Spec, edit train.Edit) []train.Reason {
	next, err := spec.Edited(edit)
	if err != nil {
		return nil // it is refused already
	}
	if encoded, err := json.Marshal(next); err == nil && len(encoded) <= maxSpecBytes {
		return nil
	}
	return []train.Reason{{Code: "TooLarge", Message: fmt.Sprintf("the changed spec has more than %d bytes", maxSpecBytes)}}
}
