package energy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// ledger books intervals and closes accounts. The bucket is the truth; the state in memory is a copy.
type ledger struct {
	bus      *bus.Bus
	register *bus.KV[train.Job]
	books    *bus.KV[contract.Book]
	hours    *bus.KV[contract.Book]
	accounts *bus.KV[train.Account]
	progress *bus.KV[train.EnergyProgress]
	log      *slog.Logger
	// reserved charges idle energy to the jobs that hold a device.
	reserved bool

	// price and currency are the operator's; price is nil without a tariff.
	price    func(time.Time) tariff.Price
	currency string

	// work is held during writes.
	work sync.Mutex
	// heard is the time of the last interval of each node; began is the time when this process began to listen.
	heard map[train.NodeID]time.Time
	began time.Time

	mu        sync.Mutex
	nodeBooks map[train.NodeID]Book
	// jobs are the records of those that have run, or have ended. Others have used nothing.
	jobs map[train.JobID]train.Job
	// ended are those of jobs that have ended.
	ended  map[train.JobID]struct{}
	closed map[train.JobID]bool
	// forgotten holds the jobs that have an account but are no longer in the register, reopened those that were resumed
	// after their account was closed.
	forgotten, reopened map[train.JobID]bool
	run                 map[train.JobID]train.EnergyProgress
	gangs               gangs
}

func newLedger(ctx context.Context, b *bus.Bus, reserved bool, log *slog.Logger, now time.Time) (*ledger, error) {
	l := &ledger{
		bus: b, log: log, reserved: reserved, heard: map[train.NodeID]time.Time{}, began: now,
		nodeBooks: map[train.NodeID]Book{}, jobs: map[train.JobID]train.Job{}, ended: map[train.JobID]struct{}{}, closed: map[train.JobID]bool{},
		run: map[train.JobID]train.EnergyProgress{}, forgotten: map[train.JobID]bool{}, reopened: map[train.JobID]bool{}, gangs: gangs{},
	}
	err := errors.Join(
		bus.Open(ctx, b, contract.Jobs, &l.register), bus.Open(ctx, b, contract.Books, &l.books), bus.Open(ctx, b, contract.Hours, &l.hours),
		bus.Open(ctx, b, contract.Accounts, &l.accounts), bus.Open(ctx, b, contract.EnergyProgress, &l.progress),
	)
	if err != nil {
		return nil, err
	}
	return l, l.load(ctx)
}

// load reads what an earlier process has written.
func (l *ledger) load(ctx context.Context) error {
	nodeBooks, err := l.books.List(ctx, "node.*")
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
	for _, e := range nodeBooks {
		l.nodeBooks[e.Value.Node] = Book(e.Value)
		l.gangs.note(Book(e.Value))
	}
	for _, e := range accounts {
		if e.Value.Final {
			l.closed[train.JobID(strings.TrimPrefix(e.Key, contract.AccountPrefix))] = true
		}
	}
	for _, e := range progress {
		if !l.closed[e.Value.Job] {
			l.run[e.Value.Job] = e.Value
		}
	}
	return nil
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

// handle books one interval.
func (l *ledger) handle(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	measured, err := readMeasured(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", bus.ErrPoison, err)
	}
	l.work.Lock()
	defer l.work.Unlock()
	// This also covers an interval that was booked before: the copies may be what a crash prevented.
	attempts := map[train.JobID]int{}
	for _, u := range measured.Users {
		attempts[u.Job] = max(attempts[u.Job], u.Attempt)
	}
	for job := range attempts {
		if err := l.meet(ctx, job); err != nil {
			return nil, err
		}
	}
	if err := l.bookHour(ctx, measured, m.Sequence); err != nil {
		return nil, err
	}
	e, err := l.books.Modify(ctx, contract.BookKey(measured.Node), func(stored *contract.Book) (bool, error) {
		b := (*Book)(stored)
		if b.has(measured, m.Sequence) {
			return false, nil
		}
		b.add(measured, m.Sequence, l.rules())
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	l.turn(Book(e.Value))
	l.heard[measured.Node] = time.Now()
	if err := l.follow(ctx, measured, attempts, e.Value.Recent); err != nil {
		return nil, err
	}
	for job := range attempts {
		if err := l.copyAccount(ctx, job); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// meet reads the record of a job that uses energy before the register has reported its start.
func (l *ledger) meet(ctx context.Context, id train.JobID) error {
	l.mu.Lock()
	_, known := l.jobs[id]
	known = known || l.closed[id]
	l.mu.Unlock()
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

func (l *ledger) rules() rules {
	return rules{closed: l.isClosed, reserved: l.reserved, beside: func(job train.JobID, m event.Measured) (unit.Power, bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.gangs.beside(job, m)
	}}
}

func (l *ledger) turn(b Book) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodeBooks[b.Node] = b.clone()
	l.gangs.note(l.nodeBooks[b.Node])
}

// copyAccount copies a running account to the job's own key. The books are the truth.
func (l *ledger) copyAccount(ctx context.Context, job train.JobID) error {
	account, found := l.account(job)
	if !found || l.isClosed(job) {
		return nil
	}
	return l.accounts.Put(ctx, contract.AccountKey(job), account)
}

// look returns the account of a job over all nodes, its record and its progress. booked is false if no node has booked
// energy for it.
func (l *ledger) look(id train.JobID) (a train.Account, booked bool, job train.Job, progress train.EnergyProgress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, booked = combined(id, l.nodeBooks)
	if earlier := l.run[id].Earlier; earlier != nil {
		add(&a, *earlier)
		booked = true
	}
	return a, booked, l.jobs[id], l.run[id]
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

// observe takes in a job's record from the register.
func (l *ledger) observe(e bus.Entry[*train.Job], deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	job := e.Value
	if id := train.JobID(e.Key); deleted && l.closed[id] {
		l.forgotten[id] = true
	}
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
	for _, book := range l.nodeBooks {
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
