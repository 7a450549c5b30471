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
	var subjects []string
	for _, fact := range []string{event.FactCancelRequested, event.FactWanted, event.FactEditRequested} {
		subjects = append(subjects, "yard.job.*."+fact+".>")
	}
	return subjects
}

// overtake handles a wish at once if very many facts of other jobs are to be handled before it. It handles the facts of
// the wish's own job up to the wish, in order. When their turn comes they change nothing, and what follows from them
// has the same keys again. The wish of a job without a verdict waits for its turn.
func (d *handler) overtake(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	d.folding.RLock()
	defer d.folding.RUnlock()
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
	var own []bus.Message
	err = d.bus.Between(ctx, event.StreamJobs, []string{"yard.job." + m.Parsed.ID + ".>"}, e.Value.LastSequence+1, m.Sequence,
		func(m bus.Message) { own = append(own, m) })
	if err != nil {
		return nil, err
	}
	var facts []event.Fact
	for _, o := range own {
		if o.ParseErr != nil || o.Parsed.Fact == event.FactSubmitted {
			continue
		}
		follow, err := d.follow(ctx, id, o)
		if err != nil && !errors.Is(err, bus.ErrPoison) { // what is poison is set aside in its turn
			return nil, err
		}
		for _, f := range follow {
			f.Cause, f.TraceParent = o.Key, o.TraceParent
			facts = append(facts, f)
		}
	}
	return facts, nil
}
