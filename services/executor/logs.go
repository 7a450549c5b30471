package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local"
)

var errNoOutput = errors.New("no output here: the job has not started on this node")

// logServer serves the logs of this machine's jobs.
type logServer struct {
	cache  *cache
	layout local.Layout
	limit  int64
}

// answer returns a piece of a job's log.
func (l logServer) answer(_ context.Context, r train.LogRequest) (train.LogChunk, error) {
	if _, err := train.ParseJobID(string(r.Job)); err != nil {
		return train.LogChunk{}, err
	}
	// A job that has ended is dropped from the cache, or is about to be.
	job, known := l.cache.job(r.Job)
	over := !known || job.State.Terminal()
	chunk, err := local.ReadLog(l.layout, r, l.limit)
	if err != nil {
		return chunk, err
	}
	if over && chunk.Size == 0 {
		return chunk, fmt.Errorf("job %s: %w", r.Job, errNoOutput)
	}
	chunk.Ended = over && chunk.Next >= chunk.Size
	return chunk, nil
}
