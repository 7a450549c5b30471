package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/train"
)

var errNoOutput = errors.New("no output here: the job has not started on this node")

// answerLogs serves a piece of a job's log from this machine.
func (e *executor) answerLogs(_ context.Context, r train.LogRequest) (train.LogChunk, error) {
	if _, err := train.ParseJobID(string(r.Job)); err != nil {
		return train.LogChunk{}, err
	}
	// A job that has ended is dropped from the picture, or is about to be.
	job, known := e.picture.job(r.Job)
	over := !known || job.State.Terminal()
	chunk, err := e.machine.ReadLog(r)
	if err != nil {
		return chunk, err
	}
	if over && chunk.Size == 0 {
		return chunk, fmt.Errorf("job %s: %w", r.Job, errNoOutput)
	}
	chunk.Ended = over && chunk.Next >= chunk.Size
	return chunk, nil
}
