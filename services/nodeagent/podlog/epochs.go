package podlog

import (
	"context"
	"time"

	"github.com/switchyard-dl/switchyard/libs/joblog/bigdl"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Receiver takes what was read in the output of jobs whose code does not call. An error means that it could not be
// stored: the call is repeated.
type Receiver interface {
	// Overhear takes the end of an epoch, with the time of the output.
	Overhear(ctx context.Context, a train.Attempt, e bigdl.Epoch, at time.Time) error
	// ReadOut takes an ended attempt whose whole output was read and delivered.
	ReadOut(ctx context.Context, a train.Attempt) error
}

// epochReader reads epochs in the log of a container.
type epochReader struct {
	log *bigdl.Log
	// at is when the newest line was written.
	at      time.Time
	pending []foundEpoch
}

// foundEpoch is an epoch, and when the output reported it.
type foundEpoch struct {
	Epoch bigdl.Epoch `json:"epoch"`
	At    time.Time   `json:"at"`
}

// readerState is what is kept of an epochReader over restarts, together with the position up to which the log was
// read. Its names in JSON are those of older versions.
type readerState struct {
	Progress bigdl.Progress `json:"progress"`
	At       time.Time      `json:"at,omitzero"`
	Pending  []foundEpoch   `json:"untold,omitempty"`
}

// newEpochReader continues where an earlier reader stopped; the zero state begins a log. If nothing says when its
// lines were written, they count as written now.
func newEpochReader(kept readerState) *epochReader {
	e := &epochReader{log: bigdl.New(kept.Progress), at: kept.At, pending: kept.Pending}
	if e.at.IsZero() {
		e.at = time.Now().UTC()
	}
	return e
}

// state returns the state to keep.
func (e *epochReader) state() readerState { return readerState{e.log.Progress, e.at, e.pending} }

// written takes the time at which the next line was written.
func (e *epochReader) written(at string) {
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		e.at = t.UTC()
	}
}

// Write takes a line.
func (e *epochReader) Write(line []byte) (int, error) {
	if epoch, ok := e.log.Line(string(line)); ok {
		e.pending = append(e.pending, foundEpoch{epoch, e.at})
	}
	return len(line), nil
}

// end tells the reader that no line will follow.
func (e *epochReader) end() {
	if epoch, ok := e.log.Close(); ok {
		e.pending = append(e.pending, foundEpoch{epoch, e.at})
	}
}

// deliver passes on the epochs in order, and returns how many were taken.
func (e *epochReader) deliver(ctx context.Context, to Receiver, a train.Attempt) (taken int, err error) {
	for len(e.pending) > 0 {
		if err := to.Overhear(ctx, a, e.pending[0].Epoch, e.pending[0].At); err != nil {
			return taken, err
		}
		e.pending = e.pending[1:]
		taken++
	}
	return taken, nil
}
