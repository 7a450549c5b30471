package demo

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// stage submits the demo's jobs and watches them.
type stage struct {
	bus  *bus.Bus
	cast []role

	mu       sync.Mutex
	jobs     map[train.JobID]train.Job
	accounts map[train.JobID]train.Account
	sent     map[train.JobID]bool
}

// stagePicture is a snapshot: the jobs in the order of the script.
type stagePicture struct {
	jobs     []train.Job
	accounts map[train.JobID]train.Account
	expected int
}

func newStage(b *bus.Bus, cast []role) *stage {
	return &stage{bus: b, cast: cast, jobs: map[train.JobID]train.Job{}, accounts: map[train.JobID]train.Account{}, sent: map[train.JobID]bool{}}
}

// run submits each job in its moment. It returns when all jobs have ended and the ledger has closed their accounts.
func (s *stage) run(ctx context.Context, show func(stagePicture)) error {
	jobs, err := bus.OpenKV(ctx, s.bus, contract.Jobs)
	if err != nil {
		return err
	}
	ledger, err := bus.OpenKV(ctx, s.bus, contract.Accounts)
	if err != nil {
		return err
	}
	own, stop := context.WithCancel(ctx)
	watching := pool.New().WithErrors().WithContext(own)
	watching.Go(func(ctx context.Context) error {
		return jobs.Watch(ctx, func(e bus.Entry[train.Job], _ bool) { s.put(func() { s.jobs[e.Value.ID] = e.Value }) }, nil)
	})
	watching.Go(func(ctx context.Context) error {
		return ledger.Watch(ctx, func(e bus.Entry[train.Account], _ bool) {
			if strings.HasPrefix(e.Key, "job.") {
				s.put(func() { s.accounts[e.Value.Job] = e.Value })
			}
		}, nil)
	})
	err = s.direct(ctx, show)
	stop()
	_ = watching.Wait() // the watch was cancelled
	return err
}

func (s *stage) put(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// errSlow says what to do about a demo that does not end.
var errSlow = errors.New("the jobs did not end in time: is the machine busy? --timeout gives them longer")

func (s *stage) direct(ctx context.Context, show func(stagePicture)) error {
	var ended time.Time
	for range tick.Every(ctx, 250*time.Millisecond) {
		picture := s.picture()
		for _, r := range s.due(picture) {
			fact := event.OnceFact(r.id, event.FactSubmitted, "submitted", event.Submitted{Spec: r.spec})
			if err := s.bus.Publish(ctx, fact); err != nil {
				return err
			}
			s.sent[r.id] = true
		}
		show(picture)
		if picture.over() {
			if ended.IsZero() {
				ended = time.Now()
			}
			const patience = 8 * time.Second
			if picture.accounted() || time.Since(ended) > patience {
				return nil
			}
		}
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return errSlow
}

// due returns the jobs whose moment has come.
func (s *stage) due(p stagePicture) []role {
	var due []role
	for _, r := range s.cast {
		if s.sent[r.id] {
			continue
		}
		at := slices.IndexFunc(p.jobs, func(j train.Job) bool { return j.ID == r.after })
		if r.after == "" || at >= 0 && (p.jobs[at].EpochsDone >= r.epochs || p.jobs[at].State.Terminal()) {
			due = append(due, r)
		}
	}
	return due
}

func (s *stage) picture() stagePicture {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := stagePicture{accounts: map[train.JobID]train.Account{}, expected: len(s.cast)}
	for _, r := range s.cast {
		if j, ok := s.jobs[r.id]; ok {
			p.jobs = append(p.jobs, j)
		}
		if a, ok := s.accounts[r.id]; ok {
			p.accounts[r.id] = a
		}
	}
	return p
}

func (p stagePicture) over() bool {
	return len(p.jobs) == p.expected && !slices.ContainsFunc(p.jobs, func(j train.Job) bool { return !j.State.Terminal() })
}

func (p stagePicture) accounted() bool {
	return !slices.ContainsFunc(p.jobs, func(j train.Job) bool { return !p.accounts[j.ID].Final })
}
