package energy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// settleAfter is how long after a job's end, and after a node's last interval, an account is closed even without a
// later interval.
const settleAfter = 5 * time.Second

// closedAtOnce bounds the accounts that are closed in a round: a long one would delay the intervals.
const closedAtOnce = 512

// settled reports whether a job needs no more work. The caller holds mu.
func (l *ledger) settled(job train.JobID) bool {
	_, closing := slices.BinarySearch(l.closing.value.Jobs, job)
	return l.closed[job] && !closing && len(l.places[job]) == 0
}

// settle closes the accounts of ended jobs that no more energy can reach, and copies those of others.
func (l *ledger) settle(ctx context.Context, now time.Time) error {
	l.work.Lock()
	defer l.work.Unlock()
	if err := l.refresh(ctx); err != nil {
		return err
	}
	return errors.Join(l.reopen(ctx), l.closeAccounts(ctx, l.due(now)), l.forget(ctx), l.copyAccounts(ctx))
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
			if err := l.carry(ctx, id, account); err != nil {
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

// carry lets a resumed job begin with what its closed account held.
func (l *ledger) carry(ctx context.Context, id train.JobID, closed train.Account) error {
	p := &page[train.EnergyProgress]{}
	if err := p.read(ctx, l.progress, contract.EnergyProgressKey(id)); err != nil {
		return err
	}
	p.value.Job, p.value.Earlier = id, &closed
	if err := p.write(ctx, l.progress, contract.EnergyProgressKey(id)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run[id] = p
	return nil
}

// forget deletes the closed accounts of jobs that the register has deleted.
func (l *ledger) forget(ctx context.Context) error {
	l.mu.Lock()
	var ids []train.JobID
	for id := range l.forgotten {
		if l.closed[id] {
			ids = append(ids, id)
		}
	}
	l.mu.Unlock()
	slices.Sort(ids)
	for _, id := range ids {
		if err := errors.Join(l.progress.Remove(ctx, contract.EnergyProgressKey(id)), l.accounts.Remove(ctx, contract.AccountKey(id))); err != nil {
			return fmt.Errorf("forget the account of %s: %w", id, err)
		}
		l.mu.Lock()
		delete(l.forgotten, id)
		delete(l.closed, id)
		l.mu.Unlock()
	}
	return nil
}

// due returns the jobs whose account can be closed, in order, after those whose account was being closed already.
func (l *ledger) due(now time.Time) []train.JobID {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.measured(maps.Keys(l.nodeBooks), now)
	due := slices.DeleteFunc(slices.Clone(l.closing.value.Jobs), func(id train.JobID) bool { return !l.closed[id] })
	begun := len(due)
	for id := range l.ended {
		if _, closing := slices.BinarySearch(due[:begun], id); closing {
			continue
		}
		until := all // a job without an account may have been anywhere
		if nodes := l.places[id]; len(nodes) > 0 {
			until = l.measured(slices.Values(nodes), now)
		}
		if until.covers(endOf(l.jobs[id]), now) {
			due = append(due, id)
		}
	}
	slices.Sort(due[begun:])
	return due
}

func endOf(job train.Job) time.Time {
	if job.FinishedAt.IsZero() {
		return job.Since
	}
	return job.FinishedAt
}

// measured is the time up to which nodes are booked: those that still send intervals, and those that are silent.
type measured struct{ talking, silent time.Time }

// measured returns the earliest time up to which any of the nodes is booked. The caller holds mu.
func (l *ledger) measured(nodes iter.Seq[train.NodeID], now time.Time) measured {
	never := now.AddDate(100, 0, 0)
	until, none := measured{never, never}, true
	for node := range nodes {
		none = false
		last := l.began
		if heard, ok := l.heard[node]; ok {
			last = heard
		}
		earliest := &until.talking
		if now.Sub(last) > settleAfter {
			earliest = &until.silent
		}
		if to := l.nodeBooks[node].value.To; to.Before(*earliest) {
			*earliest = to
		}
	}
	switch {
	case none && now.Sub(l.began) <= settleAfter:
		return measured{} // any node may still speak
	case none:
		until.silent = time.Time{}
	}
	return until
}

// covers reports whether no more energy can come to a job that ended: every node has sent an interval later than its
// end, or is silent.
func (m measured) covers(end, now time.Time) bool {
	return m.talking.After(end) && (m.silent.After(end) || now.Sub(end) > settleAfter)
}

// closeAccounts writes which accounts it closes, then the final accounts, publishes these, and removes the jobs from
// the books: in this order, so that each step can be repeated. A job that used nothing is in no book. Only the record
// of the closing shows the next process that the account of such a job may be unpublished.
func (l *ledger) closeAccounts(ctx context.Context, jobs []train.JobID) error {
	jobs = jobs[:min(len(jobs), closedAtOnce)]
	if err := l.change(ctx, func() error { return l.writeClosing(ctx, jobs) }); err != nil {
		return err
	}
	closed := make([]bool, len(jobs))
	side := pool.New().WithMaxGoroutines(exchangesAtOnce).WithErrors()
	for i, job := range jobs {
		side.Go(func() error {
			if err := l.closeAccount(ctx, job); err != nil {
				return fmt.Errorf("close the account of %s: %w", job, err)
			}
			closed[i] = true
			return nil
		})
	}
	err := side.Wait()
	return errors.Join(err, l.change(ctx, func() error {
		var left []train.JobID
		l.mu.Lock()
		for i, job := range jobs {
			switch {
			case closed[i]:
				l.strike(job)
			case l.closed[job]:
				left = append(left, job)
			}
		}
		l.mu.Unlock()
		if err := l.writeBooks(ctx); err != nil {
			return err
		}
		return l.writeClosing(ctx, left)
	}))
}

// writeClosing stores which accounts are being closed. The caller holds work.
func (l *ledger) writeClosing(ctx context.Context, jobs []train.JobID) error {
	jobs = slices.Sorted(slices.Values(jobs))
	if slices.Equal(jobs, l.closing.value.Jobs) {
		return nil
	}
	l.mu.Lock()
	l.closing.value.Jobs = jobs
	l.mu.Unlock()
	return l.closing.write(ctx, l.closings, contract.ClosingKey)
}

// closeAccount writes the final account of a job and publishes it.
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
	return l.bus.Publish(ctx, fact)
}

// record is the job as the register has it.
func (l *ledger) record(job train.JobID) train.Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs[job]
}

// strike removes a job from the books in memory, and all that was kept for it. The caller holds mu.
func (l *ledger) strike(job train.JobID) {
	for _, node := range l.places[job] {
		p := l.nodeBooks[node]
		delete(p.value.Running, job)
		p.changed = true
	}
	delete(l.places, job)
	delete(l.gangs, job)
	delete(l.uncopied, job)
	delete(l.jobs, job)
	delete(l.ended, job)
	delete(l.run, job)
}

// methodNone is the method of an account without any measurement.
const methodNone = "none"

// methodsPresent returns the methods that would have measured a job, had it lived long enough.
func (l *ledger) methodsPresent() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, p := range l.nodeBooks {
		for _, m := range p.value.Methods {
			all = include(all, m)
		}
	}
	if len(all) == 0 {
		return []string{methodNone}
	}
	return all
}
