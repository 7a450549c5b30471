package energy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

const (
	// mostIntervals bounds a batch, batchWait is how long it is collected, batchRest is the pause between two batches.
	// batchWait and batchRest together are well below settleAfter, so that a node whose intervals still wait in the stream
	// does not count as silent.
	mostIntervals = 4096
	batchWait     = 500 * time.Millisecond
	batchRest     = time.Second
	// exchangesAtOnce is how many records are read or written side by side.
	exchangesAtOnce = 256
)

// page is a copy of a stored record. This process is the record's one writer, so the copy is read once.
type page[T any] struct {
	value T
	// revision is what the next write must name, 0 before the first one.
	revision uint64
	changed  bool
}

// read reads a page; a record that is missing, or does not decode, is empty.
func (p *page[T]) read(ctx context.Context, kv *bus.KV[T], key string) error {
	e, err := kv.Get(ctx, key)
	if err != nil && !errors.Is(err, bus.ErrNotFound) && !errors.Is(err, bus.ErrPoison) {
		return err
	}
	p.value, p.revision = e.Value, e.Revision
	return nil
}

func (p *page[T]) write(ctx context.Context, kv *bus.KV[T], key string) error {
	revision, err := kv.Swap(ctx, key, p.value, p.revision)
	if err != nil {
		return err
	}
	p.revision, p.changed = revision, false
	return nil
}

// reading is an interval and its place in the stream.
type reading struct {
	event.Measured
	stream uint64
}

// attempts are the newest attempts of the jobs that used energy.
func (r reading) attempts() map[train.JobID]int {
	newest := map[train.JobID]int{}
	for _, u := range r.Users {
		newest[u.Job] = max(newest[u.Job], u.Attempt)
	}
	return newest
}

// readMeasured decodes an interval that can be booked.
func readMeasured(m bus.Message) (event.Measured, error) {
	const agent = "nodeagent"
	measured, err := event.Decode[event.Measured](m.Data)
	switch {
	case m.Source != agent:
		err = fmt.Errorf("it comes from %.80q, but only %s may publish it", m.Source, agent)
	case err == nil:
		err = errors.Join(m.ParseErr, checkMeasured(measured, m.Parsed))
	}
	return measured, err
}

// take books a batch of intervals: all in memory, in their order, and then each changed record with one
// compare-and-swap. The book of a node is written after everything else that follows from its intervals. So what the
// book has is done, and what it has not comes again and gives the same, however often a write fails in between.
func (l *ledger) take(ctx context.Context, batch []bus.Message) error {
	readings := make([]reading, len(batch))
	for i, m := range batch {
		measured, err := readMeasured(m)
		if err != nil {
			return fmt.Errorf("%w: %w", bus.ErrPoison, err)
		}
		readings[i] = reading{measured, m.Sequence}
	}
	l.work.Lock()
	defer l.work.Unlock()
	for part := range parts(readings) {
		err := l.change(ctx, func() error {
			if err := l.prepare(ctx, part); err != nil {
				return err
			}
			spent := l.bookAll(part)
			if err := l.write(ctx); err != nil {
				return err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.spent.add(spent)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// parts cuts intervals into those that are written together: of each node no more than its gangs remember, since that
// is how far a crash can set the nodes of a gang apart.
func parts(readings []reading) iter.Seq[[]reading] {
	return func(yield func([]reading) bool) {
		first, of := 0, map[train.NodeID]int{}
		for i, r := range readings {
			if of[r.Node] == heldIntervals {
				if !yield(readings[first:i]) {
					return
				}
				first, of = i, map[train.NodeID]int{}
			}
			of[r.Node]++
		}
		yield(readings[first:])
	}
}

// change changes the records in memory and in the bucket. Unless it succeeds, the memory is read again before the next
// change. The caller holds work.
func (l *ledger) change(ctx context.Context, do func() error) error {
	if err := l.refresh(ctx); err != nil {
		return err
	}
	l.stale = true
	if err := do(); err != nil {
		return err
	}
	l.stale = false
	return nil
}

// refresh reads the memory again if a change has failed.
func (l *ledger) refresh(ctx context.Context) error {
	if !l.stale {
		return nil
	}
	if err := l.load(ctx); err != nil {
		return err
	}
	l.stale = false
	return nil
}

// prepare reads the records that intervals change, or need, and that are not in memory.
func (l *ledger) prepare(ctx context.Context, readings []reading) error {
	side := pool.New().WithMaxGoroutines(exchangesAtOnce).WithErrors().WithFirstError()
	met := map[train.JobID]struct{}{}
	for _, r := range readings {
		key := contract.HourKey(r.Node, r.From)
		if l.hours[key] == nil {
			p := &page[contract.Book]{}
			l.hours[key] = p
			side.Go(func() error { return p.read(ctx, l.hourly, key) })
		}
		for _, u := range r.Users {
			if _, twice := met[u.Job]; !twice {
				met[u.Job] = struct{}{}
				side.Go(func() error { return l.meet(ctx, u.Job) })
			}
		}
	}
	return side.Wait()
}

// meet reads the records of a job that uses energy for the first time, perhaps before the register has reported its
// start.
func (l *ledger) meet(ctx context.Context, id train.JobID) error {
	l.mu.Lock()
	_, known := l.jobs[id]
	_, opened := l.run[id]
	closed := l.closed[id]
	l.mu.Unlock()
	if closed {
		return nil
	}
	if !opened {
		p := &page[train.EnergyProgress]{}
		if err := p.read(ctx, l.progress, contract.EnergyProgressKey(id)); err != nil {
			return err
		}
		l.mu.Lock()
		l.run[id] = p
		l.mu.Unlock()
	}
	if known {
		return nil
	}
	e, err := l.register.Get(ctx, string(id))
	if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrPoison) {
		return nil
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.jobs[id]; !known && !e.Value.State.Terminal() {
		l.jobs[id] = e.Value
	}
	return nil
}

// bookAll books intervals in memory, and returns what the jobs of each owner used in them.
func (l *ledger) bookAll(readings []reading) expenses {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, spent := time.Now(), expenses{}
	for _, r := range readings {
		l.heard[r.Node] = now
		l.book(r, spent)
	}
	return spent
}

// book books an interval in the book of its node, in that of the hour in which it began, and in the progress of its
// jobs, and adds to spent what these used. The caller holds mu.
func (l *ledger) book(r reading, spent expenses) {
	node := l.nodeBooks[r.Node]
	if node == nil {
		node = &page[contract.Book]{}
		l.nodeBooks[r.Node] = node
	}
	book := (*Book)(&node.value)
	if book.has(r.Measured, r.stream) {
		return
	}
	l.bookHour(*book, r)
	l.bookMinute(r.Measured)
	book.add(r.Measured, r.stream, l.rules())
	node.changed = true
	l.place(*book)
	l.gangs.note(*book, r.From)
	l.follow(r, book.Recent)
	for job, energy := range book.Recent {
		l.uncopied[job] = struct{}{}
		spent.spend(ownerOf(l.jobs[job].Spec), priced(l.price, energy, r.From))
	}
}

// place remembers the node of the jobs that have an account in its book. The caller holds mu.
func (l *ledger) place(b Book) {
	for job := range b.Running {
		l.places[job] = include(l.places[job], b.Node)
	}
}

// rules are the rules by which intervals are booked. The caller holds mu.
func (l *ledger) rules() rules {
	return rules{reserved: l.reserved, closed: func(job train.JobID) bool { return l.closed[job] }, beside: func(job train.JobID, m event.Measured) (unit.Power, bool) {
		return l.gangs.beside(job, m)
	}}
}

// write stores what has changed: the books of the nodes last.
func (l *ledger) write(ctx context.Context) error {
	first := pool.New().WithMaxGoroutines(exchangesAtOnce).WithErrors().WithFirstError()
	for key, p := range l.hours {
		if p.changed {
			first.Go(func() error { return p.write(ctx, l.hourly, key) })
		}
	}
	for job, p := range l.run {
		if p.changed {
			first.Go(func() error { return p.write(ctx, l.progress, contract.EnergyProgressKey(job)) })
		}
	}
	for key, m := range l.past {
		first.Go(func() error {
			if err := l.minutely.Put(ctx, key, m); err != nil { // the books do not wait for what is only looked at
				l.log.Warn("a minute is lost to the look back", "minute", key, "error", err)
			}
			return nil
		})
	}
	if err := first.Wait(); err != nil {
		return err
	}
	clear(l.past)
	if err := l.writeBooks(ctx); err != nil {
		return err
	}
	maps.DeleteFunc(l.hours, func(_ string, p *page[contract.Book]) bool { // an hour that is over
		node := l.nodeBooks[p.value.Node]
		return node == nil || p.value.StreamSequence < node.value.StreamSequence
	})
	return nil
}

func (l *ledger) writeBooks(ctx context.Context) error {
	side := pool.New().WithMaxGoroutines(exchangesAtOnce).WithErrors().WithFirstError()
	for node, p := range l.nodeBooks {
		if p.changed {
			side.Go(func() error { return p.write(ctx, l.books, contract.BookKey(node)) })
		}
	}
	return side.Wait()
}
