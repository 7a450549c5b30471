package podlog

import (
	"context"
	"time"

	"github.com/switchyard-dl/switchyard/libs/joblog/bigdl"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Listener is told what was read in the output of jobs whose code does not call. An error means that it could not be kept: it is told again.
type Listener interface {
	// Overhear takes the end of an epoch, of which the output told at that time.
	Overhear(ctx context.Context, a train.Attempt, e bigdl.Epoch, at time.Time) error
	// ReadOut takes that an attempt has ended and that all of its output was read and told.
	ReadOut(ctx context.Context, a train.Attempt) error
}

// ear reads epochs in the log of a container.
type ear struct {
	log *bigdl.Log
	// at is when the newest line was written.
	at     time.Time
	untold []heard
}

// heard is an epoch, and when the output told of it.
type heard struct {
	Epoch bigdl.Epoch `json:"epoch"`
	At    time.Time   `json:"at"`
}

// hearing is what is kept of an ear over restarts, together with the place up to which the log was read.
type hearing struct {
	Progress bigdl.Progress `json:"progress"`
	At       time.Time      `json:"at,omitzero"`
	Untold   []heard        `json:"untold,omitempty"`
}

// newEar goes on where an ear before it was; the zero hearing begins a log. Where nothing says when its lines were written, they are of now.
func newEar(kept hearing) *ear {
	e := &ear{log: bigdl.New(kept.Progress), at: kept.At, untold: kept.Untold}
	if e.at.IsZero() {
		e.at = time.Now().UTC()
	}
	return e
}

// hearing is the ear as it is to be kept.
func (e *ear) hearing() hearing { return hearing{e.log.Progress, e.at, e.untold} }

// written takes when the line that comes next was written.
func (e *ear) written(at string) {
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		e.at = t.UTC()
	}
}

// Write takes a line.
func (e *ear) Write(line []byte) (int, error) {
	if epoch, ok := e.log.Line(string(line)); ok {
		e.untold = append(e.untold, heard{epoch, e.at})
	}
	return len(line), nil
}

// end takes that no line will follow.
func (e *ear) end() {
	if epoch, ok := e.log.Close(); ok {
		e.untold = append(e.untold, heard{epoch, e.at})
	}
}

// tell passes on what was heard, in order, and says how much was taken.
func (e *ear) tell(ctx context.Context, to Listener, a train.Attempt) (taken int, err error) {
	for len(e.untold) > 0 {
		if err := to.Overhear(ctx, a, e.untold[0].Epoch, e.untold[0].At); err != nil {
			return taken, err
		}
		e.untold = e.untold[1:]
		taken++
	}
	return taken, nil
}
