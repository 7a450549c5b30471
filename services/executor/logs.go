package executor

import (
	"context"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// logServer serves the logs of this machine's jobs.
type logServer struct {
	cache  *cache
	layout installation.Layout
	limit  int64
}

// answer returns a piece of a job's log. A job that has ended is dropped from the cache, or is about to be.
func (l logServer) answer(_ context.Context, r train.LogRequest) (train.LogChunk, error) {
	job, known := l.cache.job(r.Job)
	return joblog.Answer(l.layout, r, l.limit, !known || job.State.Terminal())
}
