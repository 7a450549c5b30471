package executor

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// faultLog remembers what was last logged about each job, so that a lasting fault is not logged at every pass.
type faultLog struct {
	log  *slog.Logger
	last map[train.JobID]fault
}

func newFaultLog(log *slog.Logger) *faultLog {
	return &faultLog{log: log, last: map[train.JobID]fault{}}
}

// warn logs a fault of a job unless it was logged a moment ago.
func (f *faultLog) warn(ctx context.Context, what string, job train.JobID, err error) {
	if err != nil && ctx.Err() == nil && f.shouldLog(job, err.Error(), time.Now()) {
		f.log.Warn(what, "job", job, "error", err) //nolint:sloglint // a few constant messages
	}
}

type fault struct {
	text string
	at   time.Time
}

const (
	// repeatSame and repeatOther are the times after which a fault is logged again: the same one, and another one of
	// the same job, whose text may contain a name that is new each time.
	repeatSame  = 30 * time.Second
	repeatOther = 2 * time.Second
	// maxFaults bounds the memory: jobs end without telling the log.
	maxFaults = 1000
)

// shouldLog reports whether a fault is to be logged, and remembers it as logged.
func (f *faultLog) shouldLog(job train.JobID, text string, now time.Time) bool {
	last, known := f.last[job]
	since := now.Sub(last.at)
	if known && (since < repeatOther || text == last.text && since < repeatSame) {
		return false
	}
	if !known && len(f.last) >= maxFaults {
		maps.DeleteFunc(f.last, func(_ train.JobID, old fault) bool { return now.Sub(old.at) >= repeatSame })
		if len(f.last) >= maxFaults {
			return false
		}
	}
	f.last[job] = fault{text, now}
	return true
}
