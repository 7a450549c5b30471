package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
	"github.com/switchyard-dl/switchyard/services/admission/register"
)

// wholeEvery is how often it is checked that the register is there, and whole.
const wholeEvery = 2 * time.Second

// writesAtOnce is how many records are written side by side while the register is made again.
const writesAtOnce = 64

// keepWhole makes the register again from its stream if it is missing or incomplete, until ctx ends.
func (d *handler) keepWhole(ctx context.Context) error {
	for range tick.Every(ctx, wholeEvery) {
		err := d.bus.Whole(ctx, string(contract.Jobs))
		if err == nil || ctx.Err() != nil {
			continue
		}
		if errors.Is(err, bus.ErrMissing) || errors.Is(err, bus.ErrPartial) {
			err = d.refoldAll(ctx)
		}
		if err != nil && ctx.Err() == nil {
			d.log.Warn("the register is not whole", "error", err)
		}
	}
	return nil
}

// refoldAll folds JOBS into the register: facts that a record has change nothing. No fact is handled meanwhile.
func (d *handler) refoldAll(ctx context.Context) error {
	d.folding.Lock()
	defer d.folding.Unlock()
	if err := d.bus.EnsureBucket(ctx, string(contract.Jobs)); err != nil {
		return err
	}
	d.records.forgetAll()
	entries, err := d.jobs.Partly().List(ctx)
	if err != nil {
		return err
	}
	stored := make(map[train.JobID]bus.Entry[train.Job], len(entries))
	jobs := make(map[train.JobID]train.Job, len(entries))
	for _, e := range entries {
		stored[train.JobID(e.Key)], jobs[train.JobID(e.Key)] = e, e.Value
	}
	if err := d.foldStream(ctx, jobs, func(bus.Message) {}); err != nil {
		return err
	}
	writing := pool.New().WithContext(ctx).WithCancelOnError().WithMaxGoroutines(writesAtOnce)
	written := 0
	for id, job := range jobs {
		if before, was := stored[id]; !was || job.LastSequence > before.Value.LastSequence {
			written++
			writing.Go(func(ctx context.Context) error {
				_, err := d.jobs.Swap(ctx, string(id), job, before.Revision)
				return err
			})
		}
	}
	if err := writing.Wait(); err != nil {
		return err
	}
	d.log.Error("the register was missing or incomplete, and was made again from JOBS", "jobs", len(jobs), "written", written)
	return d.bus.Folded(ctx, string(contract.Jobs))
}

// foldStream folds the facts in JOBS into records. each gets every message of JOBS first.
func (d *handler) foldStream(ctx context.Context, jobs map[train.JobID]train.Job, each func(bus.Message)) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	refused, err := d.refused(ctx)
	if err != nil {
		return err
	}
	var failed error
	err = d.bus.Stored(reading, event.StreamJobs, []string{"yard.job.>"}, time.Time{}, func(m bus.Message) {
		each(m)
		if refused[m.Sequence] {
			return
		}
		id := train.JobID(m.Parsed.ID)
		before, known := jobs[id]
		next, is, err := d.foldAgain(ctx, before, known, m)
		switch {
		case err != nil:
			failed = err
			stop()
		case is:
			jobs[id] = next
		}
	})
	if failed != nil {
		return failed
	}
	return err
}

// foldAgain folds a stored message into a record as it was folded when it came. is says whether there is a record. What
// was set aside then, or changed nothing, changes nothing.
func (d *handler) foldAgain(ctx context.Context, job train.Job, known bool, m bus.Message) (next train.Job, is bool, err error) {
	submits, parsed := m.Parsed.Fact == event.FactSubmitted, m.ParseErr == nil
	if !parsed || submits == known || m.Parsed.Fact == event.FactEditRequested {
		return job, known, nil
	}
	if submits {
		next, err = opened(train.JobID(m.Parsed.ID), m, read(m))
		return next, err == nil, nil
	}
	f, ignored, err := d.factOf(ctx, job.ID, m)
	if err != nil || ignored {
		return job, true, unlessPoison(err)
	}
	if next, err = d.foldSealed(job, f); err == nil {
		job = next
	}
	return job, true, nil
}

// unlessPoison returns an error that may pass.
func unlessPoison(err error) error {
	if errors.Is(err, bus.ErrPoison) {
		return nil
	}
	return err
}

// refold makes the record of one job again from the facts before a sequence; ErrNotFound if it was never submitted.
func (d *handler) refold(ctx context.Context, id train.JobID, before uint64) (bus.Entry[train.Job], error) {
	e := bus.Entry[train.Job]{Key: string(id)}
	refused, err := d.refused(ctx)
	if err != nil {
		return e, err
	}
	var known bool
	var failed error
	err = d.bus.Between(ctx, event.StreamJobs, []string{"yard.job." + string(id) + ".>"}, 1, before-1, func(m bus.Message) {
		if failed == nil && !refused[m.Sequence] {
			e.Value, known, failed = d.foldAgain(ctx, e.Value, known, m)
		}
	})
	if err = errors.Join(failed, err); err != nil {
		return e, fmt.Errorf("fold %s again: %w", id, err)
	}
	if !known {
		return e, fmt.Errorf("fold %s again: %w", id, bus.ErrNotFound)
	}
	d.log.Error("the register had no record of a job, and it was made again from JOBS", "job", id)
	e.Revision, err = d.jobs.Swap(ctx, string(id), e.Value, 0)
	return e, err
}

const (
	// compareAt is the hour, in local time, at which register and stream are compared.
	compareAt = 3
	// mostNamed bounds the differences that are logged.
	mostNamed = 20
)

// compareNightly compares register and stream each night until ctx ends.
func (d *handler) compareNightly(ctx context.Context) error {
	for ctx.Err() == nil {
		now := time.Now()
		next := time.Date(now.Year(), now.Month(), now.Day(), compareAt, 0, 0, 0, now.Location())
		if !next.After(now) {
			next = next.AddDate(0, 0, 1)
		}
		tick.Pause(ctx, next.Sub(now))
		differences, lost, err := d.compare(ctx)
		if err != nil && ctx.Err() == nil {
			d.log.Warn("register and stream are not compared", "error", err)
		}
		if err != nil {
			continue
		}
		d.meters.differences.Set(float64(len(differences)))
		for _, text := range differences[:min(len(differences), mostNamed)] {
			d.log.Error("register and stream differ: run `switchyard repair`", "difference", text)
		}
		d.log.Info("register and stream compared", "differences", len(differences), "differences_by_lost_facts", len(lost))
	}
	return nil
}

// lives knows which sequences JOBS has lost between its first message and its last, and when jobs were submitted.
type lives struct {
	submitted map[train.JobID]uint64
	newest    uint64
	// gaps are the lost sequences, the first and the last of each row.
	gaps [][2]uint64
}

// see takes a message of JOBS; they come in order.
func (l *lives) see(m bus.Message) {
	l.reach(m.Sequence - 1)
	l.newest = m.Sequence
	if m.ParseErr == nil && m.Parsed.Fact == event.FactSubmitted && l.submitted[train.JobID(m.Parsed.ID)] == 0 {
		l.submitted[train.JobID(m.Parsed.ID)] = m.Sequence
	}
}

// reach says that no message up to a sequence comes any more.
func (l *lives) reach(sequence uint64) {
	if l.newest > 0 && sequence > l.newest {
		l.gaps = append(l.gaps, [2]uint64{l.newest + 1, sequence})
	}
}

// lost reports whether JOBS has lost messages between the submission of a job and a sequence: some may be of the job.
func (l *lives) lost(id train.JobID, until uint64) bool {
	return slices.ContainsFunc(l.gaps, func(gap [2]uint64) bool { return gap[0] <= until && gap[1] > l.submitted[id] })
}

// compare returns in words how the register differs from the fold of its stream: found is wrong, lost is of jobs that
// may have more facts in the register than JOBS has kept. Jobs with facts that are not folded yet are left out.
func (d *handler) compare(ctx context.Context) (found, lost []string, err error) {
	read, err := d.bus.LastSequence(ctx, event.StreamJobs)
	if err != nil {
		return nil, nil, err
	}
	jobs, kept := map[train.JobID]train.Job{}, lives{submitted: map[train.JobID]uint64{}}
	if err := d.foldStream(ctx, jobs, kept.see); err != nil {
		return nil, nil, err
	}
	kept.reach(read)
	handled, err := d.bus.Handled(ctx, event.StreamJobs, consumerName)
	if err != nil {
		return nil, nil, err
	}
	entries, err := d.jobs.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	last, err := d.bus.LastSequence(ctx, event.StreamJobs)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		id := train.JobID(e.Key)
		folded, known := jobs[id]
		delete(jobs, id)
		switch {
		case e.Value.LastSequence > last:
			found = append(found, fmt.Sprintf("%s: the register has fact %d, but the newest in JOBS is %d", id, e.Value.LastSequence, last))
		case !known || e.Value.LastSequence > read || folded.LastSequence > handled:
		case kept.lost(id, e.Value.LastSequence):
			lost = append(lost, register.Differences(e.Value, folded)...)
		default:
			found = append(found, register.Differences(e.Value, folded)...)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		if jobs[id].LastSequence <= handled {
			found = append(found, fmt.Sprintf("%s: JOBS has its submission, but the register has no record", id))
		}
	}
	return found, lost, nil
}

// Compare returns in words how the register on a bus differs from the fold of its stream. lost are the differences of
// jobs of which JOBS may have lost facts.
func Compare(ctx context.Context, b *bus.Bus) (found, lost []string, err error) {
	var jobs *bus.KV[train.Job]
	d := newHandler(b, nil, fit.Identity{}, folders{}, slog.New(slog.DiscardHandler), nil)
	err = errors.Join(bus.Open(ctx, b, contract.Jobs, &jobs), bus.Open(ctx, b, contract.Bucket[contract.Trials](contract.Experiments), &d.experiments))
	if err != nil {
		return nil, nil, err
	}
	d.jobs = jobs
	return d.compare(ctx)
}
