package energy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// settleAfter is how long after a job's end, and after a node's last interval, an account is closed even without a
// later interval.
const settleAfter = 5 * time.Second

// settled reports whether a job needs no more work. The caller holds mu.
func (l *ledger) settled(job train.JobID) bool {
	if !l.closed[job] {
		return false
	}
	_, running := combined(job, l.nodeBooks)
	return !running
}

// settle closes the accounts of ended jobs that no more energy can reach.
func (l *ledger) settle(ctx context.Context, now time.Time) error {
	l.work.Lock()
	defer l.work.Unlock()
	errs := []error{l.reopen(ctx)}
	for _, job := range l.due(now) {
		if err := l.closeAccount(ctx, job); err != nil {
			errs = append(errs, fmt.Errorf("close the account of %s: %w", job, err))
		}
	}
	return errors.Join(append(errs, l.forget(ctx))...)
}

// reopen lets the accounts of resumed jobs go on. Each step can be repeated: while the account is final, it is the one
// that was closed.
func (l *ledger) reopen(ctx context.Context) error {
	l.mu.Lock()
	ids := slices.Sorted(maps.Keys(l.reopened))
	l.mu.Unlock()
	for _, id := range ids {
		closed, err := l.accounts.Get(ctx, contract.AccountKey(id))
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return fmt.Errorf("reopen the account of %s: %w", id, err)
		}
		if account := closed.Value; account.Final {
			account.Final, account.Cost, account.CO2eGrams = false, nil, nil
			if err := l.amend(ctx, id, func(p *train.EnergyProgress) { p.Earlier = &account }); err != nil {
				return fmt.Errorf("reopen the account of %s: %w", id, err)
			}
			if err := l.accounts.Put(ctx, contract.AccountKey(id), account); err != nil {
				return fmt.Errorf("reopen the account of %s: %w", id, err)
			}
		}
		l.mu.Lock()
		delete(l.closed, id)
		delete(l.reopened, id)
		l.mu.Unlock()
	}
	return nil
}

// forget deletes the accounts of jobs that the register has deleted.
func (l *ledger) forget(ctx context.Context) error {
	l.mu.Lock()
	ids := slices.Sorted(maps.Keys(l.forgotten))
	l.mu.Unlock()
	for _, id := range ids {
		if err := errors.Join(remove(ctx, l.progress, contract.EnergyProgressKey(id)), remove(ctx, l.accounts, contract.AccountKey(id))); err != nil {
			return fmt.Errorf("forget the account of %s: %w", id, err)
		}
		l.mu.Lock()
		delete(l.forgotten, id)
		delete(l.closed, id)
		l.mu.Unlock()
	}
	return nil
}

// remove deletes a key that may already be gone.
func remove[T any](ctx context.Context, kv *bus.KV[T], key string) error {
	e, err := kv.Get(ctx, key)
	if err == nil {
		err = kv.Delete(ctx, key, e.Revision)
	}
	if errors.Is(err, bus.ErrNotFound) {
		return nil
	}
	return err
}

// due returns the jobs whose account can be closed, in order.
func (l *ledger) due(now time.Time) []train.JobID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []train.JobID
	for id := range l.ended {
		if l.complete(id, endOf(l.jobs[id]), now) {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	return due
}

func endOf(job train.Job) time.Time {
	if job.FinishedAt.IsZero() {
		return job.Since
	}
	return job.FinishedAt
}

// complete reports whether every node has sent an interval later than the end of a job, or is silent. The caller holds
// mu.
func (l *ledger) complete(job train.JobID, end, now time.Time) bool {
	quiet := func(node train.NodeID) bool {
		last := l.began
		if heard, ok := l.heard[node]; ok {
			last = heard
		}
		return now.Sub(last) > settleAfter && now.Sub(end) > settleAfter
	}
	_, used := combined(job, l.nodeBooks)
	reported := false
	for node, book := range l.nodeBooks {
		if _, here := book.Running[job]; used && !here {
			continue
		}
		reported = true
		if !book.To.After(end) && !quiet(node) {
			return false
		}
	}
	return reported || quiet("")
}

// closeAccount writes the final account, publishes it, and removes the job from the books: in this order, so that each
// step can be repeated.
func (l *ledger) closeAccount(ctx context.Context, job train.JobID) error {
	account, found := l.account(job)
	if l.isClosed(job) {
		stored, err := l.accounts.Get(ctx, contract.AccountKey(job))
		if err != nil {
			return err
		}
		account = stored.Value
	} else {
		if !found {
			account.Methods = l.methodsPresent()
		}
		if err := l.bill(ctx, l.record(job), &account); err != nil {
			return err
		}
		account.Final = true
		if err := l.accounts.Put(ctx, contract.AccountKey(job), account); err != nil {
			return err
		}
		l.mu.Lock()
		l.closed[job] = true
		l.mu.Unlock()
	}
	fact := event.Fact{
		Subject: event.Subject{Entity: "ledger", ID: string(job), Fact: event.FactAccounted, Version: 1},
		Key:     fmt.Sprintf("job/%s/account", job), Once: true, Body: event.Accounted{Account: account},
	}
	if lives := l.record(job).Resumed; lives > 0 {
		fact.Key, fact.Once = fmt.Sprintf("%s/%d", fact.Key, lives), false
	}
	err := l.bus.Publish(ctx, fact)
	if err != nil {
		return err
	}
	return l.removeFromBooks(ctx, job)
}

// record is the job as the register has it.
func (l *ledger) record(job train.JobID) train.Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs[job]
}

// removeFromBooks removes a job from the books.
func (l *ledger) removeFromBooks(ctx context.Context, job train.JobID) error {
	for _, node := range l.nodesOf(job) {
		e, err := l.books.Modify(ctx, contract.BookKey(node), func(b *contract.Book) (bool, error) {
			_, here := b.Running[job]
			delete(b.Running, job)
			return here, nil
		})
		if err != nil {
			return err
		}
		l.turn(Book(e.Value))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.jobs, job)
	delete(l.ended, job)
	delete(l.run, job)
	return nil
}

// methodNone is the method of an account without any measurement.
const methodNone = "none"

// methodsPresent returns the methods that would have measured a job, had it lived long enough.
func (l *ledger) methodsPresent() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, book := range l.nodeBooks {
		for _, m := range book.Methods {
			all = include(all, m)
		}
	}
	if len(all) == 0 {
		return []string{methodNone}
	}
	return all
}
