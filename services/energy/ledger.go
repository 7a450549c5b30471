package energy

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// ledger books intervals and closes accounts. The bucket is the truth; the state in memory is a copy.
type ledger struct {
	bus      *bus.Bus
	register *bus.KV[train.Job]
	books    *bus.KV[contract.Book]
	closings *bus.KV[contract.Closing]
	hourly   *bus.KV[contract.Book]
	minutely *bus.KV[contract.Minute]
	accounts *bus.KV[train.Account]
	progress *bus.KV[train.EnergyProgress]
	log      *slog.Logger
	// reserved charges idle energy to the jobs that hold a device.
	reserved bool

	// price and currency are the operator's; price is nil without a tariff.
	price    func(time.Time) tariff.Price
	currency string

	// work is held while records change.
	work sync.Mutex
	// stale says that records in memory may differ from those in the bucket.
	stale bool
	// hours are the books of the hours of the nodes' newest intervals, by key.
	hours map[string]*page[contract.Book]
	// minutes are those of the nodes' newest intervals. past are those that are over and not yet written, by key.
	minutes map[train.NodeID]*minute
	past    map[string]contract.Minute
	// began is the time when this process began to listen.
	began time.Time

	mu        sync.Mutex
	nodeBooks map[train.NodeID]*page[contract.Book]
	// places are the nodes whose books have an account of a job, in order.
	places map[train.JobID][]train.NodeID
	// heard is the time of the last interval of each node.
	heard map[train.NodeID]time.Time
	// jobs are the records of those that have run, or have ended. Others have used nothing.
	jobs map[train.JobID]train.Job
	// ended are those of jobs that have ended.
	ended  map[train.JobID]struct{}
	closed map[train.JobID]bool
	// closing are the jobs whose accounts may be final and not yet published.
	closing page[contract.Closing]
	// forgotten holds the jobs that have an account but are no longer in the register, reopened those that were resumed
	// after their account was closed.
	forgotten, reopened map[train.JobID]bool
	run                 map[train.JobID]*page[train.EnergyProgress]
	// uncopied are the jobs whose account has changed since it was copied to their own key.
	uncopied map[train.JobID]struct{}
	gangs    gangs
	spent    expenses
}

func newLedger(ctx context.Context, b *bus.Bus, reserved bool, log *slog.Logger, now time.Time) (*ledger, error) {
	l := &ledger{
		bus: b, log: log, reserved: reserved, heard: map[train.NodeID]time.Time{}, began: now,
		jobs: map[train.JobID]train.Job{}, ended: map[train.JobID]struct{}{}, closed: map[train.JobID]bool{},
		forgotten: map[train.JobID]bool{}, reopened: map[train.JobID]bool{}, spent: expenses{},
		minutes: map[train.NodeID]*minute{}, past: map[string]contract.Minute{},
	}
	err := errors.Join(
		bus.Open(ctx, b, contract.Jobs, &l.register), bus.Open(ctx, b, contract.Books, &l.books), bus.Open(ctx, b, contract.Closings, &l.closings), bus.Open(ctx, b, contract.Hours, &l.hourly), bus.Open(ctx, b, contract.Minutes, &l.minutely),
		bus.Open(ctx, b, contract.Accounts, &l.accounts), bus.Open(ctx, b, contract.EnergyProgress, &l.progress),
	)
	if err != nil {
		return nil, err
	}
	return l, l.load(ctx)
}

// load reads what an earlier process has written, or what this one has where a write failed.
func (l *ledger) load(ctx context.Context) error {
	nodeBooks, err := l.books.List(ctx, contract.BookKey("*"))
	if err != nil {
		return err
	}
	accounts, err := l.accounts.List(ctx, contract.AccountKey("*"))
	if err != nil {
		return err
	}
	progress, err := l.progress.List(ctx, contract.EnergyProgressKey("*"))
	if err != nil {
		return err
	}
	var closing page[contract.Closing]
	if err := closing.read(ctx, l.closings, contract.ClosingKey); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = closing
	l.hours, l.nodeBooks, l.run = map[string]*page[contract.Book]{}, map[train.NodeID]*page[contract.Book]{}, map[train.JobID]*page[train.EnergyProgress]{}
	l.places, l.uncopied, l.gangs = map[train.JobID][]train.NodeID{}, map[train.JobID]struct{}{}, gangs{}
	for _, e := range nodeBooks {
		l.nodeBooks[e.Value.Node] = &page[contract.Book]{value: e.Value, revision: e.Revision}
		l.place(Book(e.Value))
		l.gangs.note(Book(e.Value), e.Value.To)
	}
	for _, e := range accounts {
		if e.Value.Final {
			l.closed[train.JobID(strings.TrimPrefix(e.Key, contract.AccountPrefix))] = true
		}
	}
	for _, e := range progress {
		if !l.closed[e.Value.Job] {
			l.run[e.Value.Job] = &page[train.EnergyProgress]{value: e.Value, revision: e.Revision}
		}
	}
	for job := range l.places {
		l.uncopied[job] = struct{}{}
	}
	return nil
}

// copiesAtOnce bounds the accounts that are copied in a round: a long one would delay the intervals.
const copiesAtOnce = 256

// copyAccounts copies running accounts to the jobs' own keys. The books are the truth. The caller holds work.
func (l *ledger) copyAccounts(ctx context.Context) error {
	l.mu.Lock()
	var jobs []train.JobID
	for job := range l.uncopied { // in random order, so each has its turn
		if len(jobs) < copiesAtOnce {
			jobs = append(jobs, job)
			delete(l.uncopied, job)
		}
	}
	l.mu.Unlock()
	side := pool.New().WithMaxGoroutines(exchangesAtOnce).WithErrors().WithFirstError()
	for _, job := range jobs {
		side.Go(func() error {
			account, found := l.account(job)
			if !found || l.isClosed(job) {
				return nil
			}
			return l.accounts.Put(ctx, contract.AccountKey(job), account)
		})
	}
	err := side.Wait()
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, job := range jobs {
			l.uncopied[job] = struct{}{}
		}
	}
	return err
}

// look returns the account of a job over all nodes, its record and its progress. booked is false if no node has booked
// energy for it.
func (l *ledger) look(id train.JobID) (a train.Account, booked bool, job train.Job, progress train.EnergyProgress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, booked = combined(id, l.shares(id))
	progress = l.progressOf(id)
	if earlier := progress.Earlier; earlier != nil {
		add(&a, *earlier)
		booked = true
	}
	return a, booked, l.jobs[id], progress
}

// shares returns the accounts of a job in the books of its nodes. The caller holds mu.
func (l *ledger) shares(id train.JobID) []train.Account {
	shares := make([]train.Account, len(l.places[id]))
	for i, node := range l.places[id] {
		shares[i] = l.nodeBooks[node].value.Running[id]
	}
	return shares
}

// progressOf returns the progress of a job, or an empty one. The caller holds mu.
func (l *ledger) progressOf(id train.JobID) train.EnergyProgress {
	if p := l.run[id]; p != nil {
		return p.value
	}
	return train.EnergyProgress{}
}

func (l *ledger) account(id train.JobID) (train.Account, bool) {
	a, booked, job, progress := l.look(id)
	a.ToTarget = progress.Target
	a.Epochs, a.Samples, a.Waste = job.EpochsDone, progress.Samples, wasteOf(a.Energy, job, progress)
	return a, booked
}

func (l *ledger) isClosed(job train.JobID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed[job]
}

// noteDeleted notes a job whose record was deleted and that has an account, or whose account is just being closed. The
// id of such a job may be used again. The caller holds mu.
func (l *ledger) noteDeleted(id train.JobID, deleted bool) {
	_, ended := l.ended[id]
	switch {
	case deleted && (ended || l.closed[id]):
		l.forgotten[id] = true
	case !deleted && !l.closed[id]:
		delete(l.forgotten, id)
	}
}

// observe takes in a job's record from the register.
func (l *ledger) observe(e bus.Entry[*train.Job], deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	job := e.Value
	l.noteDeleted(train.JobID(e.Key), deleted)
	if job.Resumed > 0 && !deleted && !job.State.Terminal() && l.closed[job.ID] {
		l.reopened[job.ID], l.jobs[job.ID] = true, *job
	}
	if deleted || job.State == train.StateRejected || job.State == train.StateNone || l.settled(job.ID) {
		return
	}
	if _, met := l.jobs[job.ID]; !met && !job.State.Terminal() && job.Attempt == 0 {
		return // all of a long queue
	}
	l.jobs[job.ID] = *job
	if job.State.Terminal() {
		l.ended[job.ID] = struct{}{}
	} else {
		delete(l.ended, job.ID)
	}
}

// totals returns the sums over all nodes, by component, and the losses.
func (l *ledger) totals() (byComponent map[string]contract.Totals, gapSeconds float64, missing, resets uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byComponent = map[string]contract.Totals{}
	for _, p := range l.nodeBooks {
		book := p.value
		for component, t := range book.Totals {
			sum := byComponent[component]
			sum.Measured += t.Measured
			sum.Attributed += t.Attributed
			sum.Idle += t.Idle
			sum.Unattributed += t.Unattributed
			byComponent[component] = sum
		}
		gapSeconds += book.GapSeconds
		missing += book.Missing
		resets += book.Resets
	}
	return byComponent, gapSeconds, missing, resets
}
