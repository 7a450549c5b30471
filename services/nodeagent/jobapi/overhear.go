package jobapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/switchyard-dl/switchyard/libs/joblog/bigdl"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// errNotKept says that a report could be stored neither on the bus nor on disk.
var errNotKept = errors.New("not kept")

// Overhear takes the end of an epoch that this agent has read in the output of an attempt, of which that told at a time. An error means that it is to be told
// again; one that makes no sense is left out, as it would be for a program that calls.
func (a *API) Overhear(ctx context.Context, attempt train.Attempt, e bigdl.Epoch, at time.Time) error {
	body, err := e.Report()
	if err != nil {
		return fmt.Errorf("encode epoch %d of %s: %w", e.Epoch, attempt.Job, err)
	}
	_, refused := a.epochs(ctx, call{session: a.session(ctx, attempt), body: body, now: at})
	switch {
	case refused == nil:
		return nil
	case refused.status >= http.StatusInternalServerError:
		return fmt.Errorf("epoch %d of %s: %w: %s", e.Epoch, attempt.Job, errNotKept, refused.message)
	}
	a.log.Warn("an epoch in the output of a job makes no sense", "job", attempt.Job, "attempt", attempt.Number, "epoch", e.Epoch, "reason", refused.message)
	return nil
}

// ReadOut takes that the output of an attempt, which has ended, was read and told as a whole.
func (a *API) ReadOut(ctx context.Context, attempt train.Attempt) error {
	s := a.session(ctx, attempt)
	if s.known().OutputRead {
		return nil
	}
	if refused := a.record(ctx, call{session: s, now: time.Now(), overheard: true}, nil, train.AttemptReport{OutputRead: true}); refused != nil {
		return fmt.Errorf("end of the output of %s: %w: %s", attempt.Job, errNotKept, refused.message)
	}
	return nil
}
