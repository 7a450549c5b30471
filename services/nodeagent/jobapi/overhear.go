package jobapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/switchyard-dl/switchyard/libs/joblog/epochs"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// errNotStored says that a report could be stored neither on the bus nor on disk.
var errNotStored = errors.New("not stored")

// Overhear takes the end of an epoch that this agent has read in the output of an attempt, with the time of the
// output. An error means that the call has to be repeated. An epoch that makes no sense is ignored, as for a program
// that calls.
func (a *API) Overhear(ctx context.Context, attempt train.Attempt, e epochs.Epoch, at time.Time) error {
	body, err := e.Report()
	if err != nil {
		return fmt.Errorf("encode epoch %d of %s: %w", e.Epoch, attempt.Job, err)
	}
	_, refused := reading(a.epochs)(ctx, call{session: a.session(ctx, attempt), body: body, now: at})
	switch {
	case refused == nil:
		return nil
	case refused.status >= http.StatusInternalServerError:
		return fmt.Errorf("epoch %d of %s: %w: %s", e.Epoch, attempt.Job, errNotStored, refused.message)
	}
	a.log.Warn("epoch in the output of a job ignored", "job", attempt.Job, "attempt", attempt.Number, "epoch", e.Epoch, "reason", refused.message)
	return nil
}

// ReadOut records that the whole output of an ended attempt was read and reported.
func (a *API) ReadOut(ctx context.Context, attempt train.Attempt) error {
	s := a.session(ctx, attempt)
	if s.known().OutputRead {
		return nil
	}
	if refused := a.record(ctx, call{session: s, now: time.Now(), overheard: true}, nil, train.AttemptReport{OutputRead: true}); refused != nil {
		return fmt.Errorf("end of the output of %s: %w: %s", attempt.Job, errNotStored, refused.message)
	}
	return nil
}
