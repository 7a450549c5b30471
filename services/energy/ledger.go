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
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Keys of the bucket.
func nodeKey(node train.NodeID) string { return "node." + string(node) }
func jobKey(job train.JobID) string    { return "job." + string(job) }
func courseKey(job train.JobID) string { return "course." + string(job) }

// ledger books intervals and closes accounts. The bucket is the truth; what is in memory is a copy.
type ledger struct {
	bus      *bus.Bus
	books    *bus.KV[Book]
	hours    *bus.KV[Book]
	accounts *bus.KV[train.Account]
	courses  *bus.KV[train.Course]
	log      *slog.Logger
	// reserved charges idleness to the jobs that keep a device.
	reserved bool

	// work is held while something is written.
	work sync.Mutex
	// heard is when the last interval of a node came; began when this process began to listen.
	heard map[train.NodeID]time.Time
	began time.Time

	mu     sync.Mutex
	pages  map[train.NodeID]Book
	jobs   map[train.JobID]train.Job
	closed map[train.JobID]bool
	// forgotten are the jobs that the register has forgotten and of which there is an account.
	forgotten map[train.JobID]bool
	run       map[train.JobID]train.Course
	gangs     gangs
}

func newLedger(ctx context.Context, b *bus.Bus, reserved bool, log *slog.Logger, now time.Time) (*ledger, error) {
	books, err := bus.OpenKV[Book](ctx, b, event.BucketLedger)
	if err != nil {
		return nil, err
	}
	hours, err := bus.OpenKV[Book](ctx, b, event.BucketHours)
	if err != nil {
		return nil, err
	}
	accounts, err := bus.OpenKV[train.Account](ctx, b, event.BucketLedger)
	if err != nil {
		return nil, err
	}
	courses, err := bus.OpenKV[train.Course](ctx, b, event.BucketLedger)
	if err != nil {
		return nil, err
	}
	l := &ledger{
		bus: b, books: books, hours: hours, accounts: accounts, courses: courses, log: log, reserved: reserved, heard: map[train.NodeID]time.Time{}, began: now,
		pages: map[train.NodeID]Book{}, jobs: map[train.JobID]train.Job{}, closed: map[train.JobID]bool{}, run: map[train.JobID]train.Course{}, forgotten: map[train.JobID]bool{}, gangs: gangs{},
	}
	return l, l.load(ctx)
}

// load takes up what a process before this one has written.
func (l *ledger) load(ctx context.Context) error {
	pages, err := l.books.List(ctx, "node.*")
	if err != nil {
		return err
	}
	accounts, err := l.accounts.List(ctx, "job.*")
	if err != nil {
		return err
	}
	courses, err := l.courses.List(ctx, "course.*")
	if err != nil {
		return err
	}
	for _, e := range pages {
		l.pages[e.Value.Node] = e.Value
		l.gangs.note(e.Value)
	}
	for _, e := range accounts {
		if e.Value.Final {
			l.closed[train.JobID(strings.TrimPrefix(e.Key, "job."))] = true
		}
	}
	for _, e := range courses {
		if !l.closed[e.Value.Job] {
			l.run[e.Value.Job] = e.Value
		}
	}
	return nil
}

// readMeasured reads an interval that can be booked.
func readMeasured(m bus.Message) (event.Measured, error) {
	const agent = "nodeagent"
	measured, err := event.Decode[event.Measured](m.Data)
	switch {
	case m.Source != agent:
		err = fmt.Errorf("it comes from %.80q, only %s may say so", m.Source, agent)
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
	if err := l.bookHour(ctx, measured, m.Sequence); err != nil {
		return nil, err
	}
	e, err := l.books.Modify(ctx, nodeKey(measured.Node), func(b *Book) (bool, error) {
		if b.has(measured, m.Sequence) {
			return false, nil
		}
		b.add(measured, m.Sequence, l.rules())
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	l.turn(e.Value)
	l.heard[measured.Node] = time.Now()
	// Of an interval that was booked before, too: the copies may be what was missed.
	touched := map[train.JobID]bool{}
	for _, u := range measured.Users {
		touched[u.Job] = true
	}
	if err := l.follow(ctx, measured, e.Value.Recent); err != nil {
		return nil, err
	}
	for job := range touched {
		if err := l.copyAccount(ctx, job); err != nil {
			return nil, err
		}
	}
	return nil, nil
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
	l.pages[b.Node] = b.clone()
	l.gangs.note(l.pages[b.Node])
}

// copyAccount shows a running account under the job's own key. The books are the truth.
func (l *ledger) copyAccount(ctx context.Context, job train.JobID) error {
	account, found := l.account(job)
	if !found || l.isClosed(job) {
		return nil
	}
	return l.write(ctx, account)
}

func (l *ledger) write(ctx context.Context, account train.Account) error {
	_, err := l.accounts.Modify(ctx, jobKey(account.Job), func(a *train.Account) (bool, error) {
		*a = account
		return true, nil
	})
	return err
}

func (l *ledger) account(job train.JobID) (train.Account, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, found := combined(job, l.pages)
	record, course := l.jobs[job], l.run[job]
	a.ToTarget = course.Target
	a.Epochs, a.Samples, a.Waste = record.EpochsDone, course.Samples, wasteOf(a.Energy, record, course)
	return a, found
}

func (l *ledger) isClosed(job train.JobID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed[job]
}

// see takes a job's record from the register.
func (l *ledger) see(e bus.Entry[train.Job], deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	job := e.Value
	if id := train.JobID(e.Key); deleted && l.closed[id] {
		l.forgotten[id] = true
	}
	if deleted || job.State == train.StateRejected || job.State == train.StateNone || l.settled(job.ID) {
		return
	}
	l.jobs[job.ID] = job
}

// totals are the sums over all nodes, by component, and what was missed.
func (l *ledger) totals() (byComponent map[string]Totals, gapSeconds float64, missing, resets uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byComponent = map[string]Totals{}
	for _, page := range l.pages {
		for component, t := range page.Totals {
			sum := byComponent[component]
			sum.Measured += t.Measured
			sum.Attributed += t.Attributed
			sum.Idle += t.Idle
			sum.Unattributed += t.Unattributed
			byComponent[component] = sum
		}
		gapSeconds += page.GapSeconds
		missing += page.Missing
		resets += page.Resets
	}
	return byComponent, gapSeconds, missing, resets
}
