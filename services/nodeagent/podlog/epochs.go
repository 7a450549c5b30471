package podlog

import (
	"context"
	"encoding/json"
	"time"

	"github.com/switchyard-dl/switchyard/libs/joblog/epochs"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Receiver takes what was read in the output of jobs whose code does not call. An error means that it could not be
// stored: the call is repeated.
type Receiver interface {
	// Overhear takes the end of an epoch, with the time of the output.
	Overhear(ctx context.Context, a train.Attempt, e epochs.Epoch, at time.Time) error
	// ReadOut takes an ended attempt whose whole output was read and delivered.
	ReadOut(ctx context.Context, a train.Attempt) error
}

// epochReader reads epochs in the log of a container.
type epochReader struct {
	reader epochs.Reader
	// at is when the newest line was written.
	at      time.Time
	pending []foundEpoch
}

// foundEpoch is an epoch, and when the output reported it.
type foundEpoch struct {
	Epoch epochs.Epoch `json:"epoch"`
	At    time.Time    `json:"at"`
}

// readerState is what is kept of an epochReader over restarts, together with the position up to which the log was
// read. Its names in JSON are those of older versions.
type readerState struct {
	Progress json.RawMessage `json:"progress"`
	At       time.Time       `json:"at,omitzero"`
	Pending  []foundEpoch    `json:"untold,omitempty"`
}

// newEpochReader continues where an earlier reader stopped; the zero state begins a log. If nothing says when its
// lines were written, they count as written now.
func newEpochReader(format string, kept readerState) (*epochReader, error) {
	reader, err := epochs.New(format, kept.Progress)
	if err != nil {
		return nil, err
	}
	e := &epochReader{reader: reader, at: kept.At, pending: kept.Pending}
	if e.at.IsZero() {
		e.at = time.Now().UTC()
	}
	return e, nil
}

// state returns the state to keep.
func (e *epochReader) state() (readerState, error) {
	progress, err := json.Marshal(e.reader)
	return readerState{progress, e.at, e.pending}, err
}

// written takes the time at which the next line was written.
func (e *epochReader) written(at string) {
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		e.at = t.UTC()
	}
}

// Write takes a line.
func (e *epochReader) Write(line []byte) (int, error) {
	if epoch, ok := e.reader.Line(string(line)); ok {
		e.pending = append(e.pending, foundEpoch{epoch, e.at})
	}
	return len(line), nil
}

// end tells the reader that no line will follow.
func (e *epochReader) end() {
	if epoch, ok := e.reader.Close(); ok {
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
