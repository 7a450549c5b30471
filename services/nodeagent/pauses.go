package nodeagent

import (
	"context"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// pauses knows how far the jobs of trials may train for now. Training code that has come as far is told to leave with its next question, so no epoch is trained
// that nobody has asked for.
type pauses struct {
	mu     sync.Mutex
	wanted map[train.JobID]train.Setting
	synced *signal
}

// pausesPatience is how long training code waits for an agent that has just begun: within that it has read what is wanted, or the bus is away.
const pausesPatience = 5 * time.Second

func newPauses() *pauses {
	return &pauses{wanted: map[train.JobID]train.Setting{}, synced: newSignal()}
}

func (p *pauses) see(e bus.Entry[train.Setting], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if deleted {
		delete(p.wanted, train.JobID(e.Key))
		return
	}
	p.wanted[train.JobID(e.Key)] = e.Value
}

// holds says whether a job that has done so many epochs is to leave.
func (p *pauses) holds(ctx context.Context, job train.JobID, epochsDone int) bool {
	within, cancel := context.WithTimeout(ctx, pausesPatience)
	defer cancel()
	select {
	case <-p.synced.c:
	case <-within.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wanted[job].Pauses(epochsDone)
}
