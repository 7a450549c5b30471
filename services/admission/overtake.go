package admission

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// overtakeAfter is how many facts may lie between a wish and those that are handled before the wish overtakes them: a
// moment's work.
const overtakeAfter = 500

// progress is the sequence of the newest fact that was handled in its turn.
type progress struct{ newest atomic.Uint64 }

func (p *progress) reach(sequence uint64) {
	for {
		before := p.newest.Load()
		if before >= sequence || p.newest.CompareAndSwap(before, sequence) {
			return
		}
	}
}

// wishFilters are the subjects of what people ask of a job that was admitted.
func wishFilters() []string {
	return []string{"yard.job.*." + event.FactCancelRequested + ".>", "yard.job.*." + event.FactWanted + ".>"}
}

// overtake folds a wish at once if very many facts of other jobs are to be handled before it: the facts of its own job
// up to the wish are folded now, in order. They change nothing when their turn comes, but what follows from them is
// published then. The wish of a job without a verdict waits for its turn.
func (d *handler) overtake(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	if m.Sequence < d.progress.newest.Load()+overtakeAfter {
		return nil, nil
	}
	id := train.JobID(m.Parsed.ID)
	e, err := d.record(ctx, id)
	known := err == nil && e.Value.State != train.StateSubmitted
	if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrPoison) {
		err = nil
	}
	if err != nil || !known || e.Value.LastSequence >= m.Sequence {
		return nil, err
	}
	var facts []bus.Message
	err = d.bus.Between(ctx, event.StreamJobs, []string{"yard.job." + m.Parsed.ID + ".>"}, e.Value.LastSequence+1, m.Sequence,
		func(m bus.Message) { facts = append(facts, m) })
	if err != nil {
		return nil, err
	}
	for _, f := range facts {
		if f.ParseErr != nil || f.Parsed.Fact == event.FactSubmitted {
			continue
		}
		// What is set aside, is so in its turn.
		if err := d.fold(ctx, id, f); err != nil && !errors.Is(err, bus.ErrPoison) {
			return nil, err
		}
	}
	return nil, nil
}
