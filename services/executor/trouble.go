package executor

import (
	"maps"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// troubles remembers what was last said of each job, so that a fault that lasts is not repeated at every tick.
type troubles map[train.JobID]trouble

type trouble struct {
	text string
	at   time.Time
}

const (
	// sameAgain and otherAgain are the times after which a fault is told again: the same one, and another one of the same job, whose words may hold a
	// name that is new each time.
	sameAgain  = 30 * time.Second
	otherAgain = 2 * time.Second
	// mostTroubles bounds the memory: jobs end, and nobody says when their troubles do.
	mostTroubles = 1000
)

// news says whether a fault is to be told, and takes it down as told.
func (t troubles) news(job train.JobID, text string, now time.Time) bool {
	last, known := t[job]
	since := now.Sub(last.at)
	if known && (since < otherAgain || text == last.text && since < sameAgain) {
		return false
	}
	if !known && len(t) >= mostTroubles {
		maps.DeleteFunc(t, func(_ train.JobID, old trouble) bool { return now.Sub(old.at) >= sameAgain })
		if len(t) >= mostTroubles {
			return false
		}
	}
	t[job] = trouble{text, now}
	return true
}
