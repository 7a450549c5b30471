package nodeagent

import (
	"context"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// wishes knows what is wanted of the jobs of trials: how far they may train for now, and under which of the system parameters that an agent sets. Training code
// that has come as far is told to leave with its next question, so no epoch is trained that nobody has asked for.
type wishes struct {
	mu     sync.Mutex
	wanted map[train.JobID]train.Setting
	synced *signal
}

// wishesPatience is how long training code waits for an agent that has just begun: within that it has read what is wanted, or the bus is away.
const wishesPatience = 5 * time.Second

func newWishes() *wishes {
	return &wishes{wanted: map[train.JobID]train.Setting{}, synced: newSignal()}
}

func (w *wishes) see(e bus.Entry[train.Setting], deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if deleted {
		delete(w.wanted, train.JobID(e.Key))
		return
	}
	w.wanted[train.JobID(e.Key)] = e.Value
}

// holds says whether a job that has done so many epochs is to leave.
func (w *wishes) holds(ctx context.Context, job train.JobID, epochsDone int) bool {
	within, cancel := context.WithTimeout(ctx, wishesPatience)
	defer cancel()
	select {
	case <-w.synced.c:
	case <-within.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wanted[job].Pauses(epochsDone)
}

// microBatch is with which micro-batch the attempt of a trial shall run, and the generation of that; false where nobody says.
func (w *wishes) microBatch(a train.Attempt) (wanted train.TunedTenant, generation uint64, tuned bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.wanted[a.Job]
	wanted, tuned = s.MicroBatch(a.DeviceCount())
	return wanted, s.Generation, tuned
}

// watts are what each GPU of the job of a trial may draw; 0 where nobody says.
func (w *wishes) watts(job train.JobID) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wanted[job].Values[train.SettingPowerLimit]
}
