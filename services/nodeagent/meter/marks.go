package meter

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// mostMarks bounds the epochs of an attempt in one interval, marksBytes those of all attempts, which share it
	// equally. The interval has the energy of all jobs, so one that reports epochs in a loop must not make it too large.
	mostMarks  = 128
	marksBytes = event.MaxBodyBytes * 3 / 8
)

// marks are the ends of epochs that no interval has yet: the newest of each attempt.
type marks struct {
	mu sync.Mutex
	of map[attemptID][]event.EpochMark
}

type attemptID struct {
	job    train.JobID
	number int
}

func (a *marks) put(m event.EpochMark) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[attemptID][]event.EpochMark{}
	}
	id := attemptID{m.Job, m.Attempt}
	all := append(a.of[id], m)
	a.of[id] = all[max(len(all)-mostMarks, 0):]
}

// take returns the ends of epochs since the last call, in order. They are clamped to the interval: a wall clock that
// was set may have moved them.
func (a *marks) take(from, to time.Time) []event.EpochMark {
	a.mu.Lock()
	of := a.of
	a.of = nil
	a.mu.Unlock()
	var all []event.EpochMark
	for _, own := range of {
		all = append(all, fitting(own, marksBytes/len(of))...)
	}
	for i, m := range all {
		if m.At.Before(from) {
			all[i].At = from
		} else if m.At.After(to) {
			all[i].At = to
		}
	}
	slices.SortStableFunc(all, func(x, y event.EpochMark) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Job, y.Job), cmp.Compare(x.Attempt, y.Attempt))
	})
	return all
}

// fitting returns the newest of an attempt's marks that fit into some bytes, in order, and at least the last one. A
// mark whose metrics do not fit goes without them.
func fitting(all []event.EpochMark, bytes int) []event.EpochMark {
	first := len(all)
	for i, m := range slices.Backward(all) {
		size := sizeOf(m)
		if size > bytes {
			m.Metrics = nil
			size = sizeOf(m)
		}
		if size > bytes && first < len(all) {
			break
		}
		all[i], first, bytes = m, i, bytes-size
	}
	return all[first:]
}

func sizeOf(m event.EpochMark) int {
	data, _ := json.Marshal(m) // its numbers came as JSON
	return len(data)
}
