package admission

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/notice"
	"github.com/switchyard-dl/switchyard/services/admission/notify"
)

const (
	// noticeInterval is how often jobs are looked at for what no change of their record tells: silence and lateness.
	noticeInterval = 5 * time.Second
	// noticeKept is how long a notice is tried.
	noticeKept = 24 * time.Hour
	// The pause before a notice is tried again doubles with each failure.
	firstNoticePause, longestNoticePause = time.Second, 10 * time.Minute
)

// notices notifies people of what happens to their jobs. The notices follow from the records of jobs, so that none is
// lost while this service is away; a record of its own has those that were sent. A notice is sent again if the service
// dies between the delivery and the record.
type notices struct {
	told     *bus.KV[train.Notices]
	attempts *bus.KV[train.Attempt]
	reports  *bus.KV[train.AttemptReport]
	sender   *notify.Sender
	users    map[string]train.NotifySpec
	log      *slog.Logger
	changed  tick.Signal

	mu sync.Mutex
	// jobs are those with a recipient, until all notices are sent. gone are those without a record.
	jobs map[train.JobID]train.Job
	gone map[train.JobID]bool

	// The loop alone uses what follows. waiting are the notices that are due and not under way.
	done    map[train.JobID]map[string]time.Time
	failed  map[train.JobID]map[string]failure
	waiting []notice.Notice
	flight  flight
}

// failure counts the tries of a notice that was not delivered.
type failure struct {
	tries int
	next  time.Time
}

func newNotices(ctx context.Context, b *bus.Bus, c settings.Notify, log *slog.Logger) (*notices, error) {
	n := &notices{
		sender: notify.New(c), users: map[string]train.NotifySpec{}, log: log, changed: tick.NewSignal(),
		jobs: map[train.JobID]train.Job{}, gone: map[train.JobID]bool{}, done: map[train.JobID]map[string]time.Time{}, failed: map[train.JobID]map[string]failure{},
		flight: newFlight(),
	}
	for user, target := range c.Users {
		n.users[user], _ = train.ParseNotify(target)
	}
	return n, errors.Join(bus.Open(ctx, b, contract.Notices, &n.told), bus.Open(ctx, b, contract.Attempts, &n.attempts), bus.Open(ctx, b, contract.Reports, &n.reports))
}

// observe notes a job with a recipient.
func (n *notices) observe(e bus.Entry[*train.Job], deleted bool) {
	id := train.JobID(e.Key)
	n.mu.Lock()
	defer n.mu.Unlock()
	if deleted {
		delete(n.jobs, id)
		n.gone[id] = true
		return
	}
	if _, own := n.users[e.Value.Spec.User]; own || len(e.Value.Spec.Notify) > 0 {
		n.jobs[id] = *e.Value
		n.changed.Send()
	}
}

// run works until ctx ends. The jobs must be known. Deliveries go on in the background: a receiver that does not answer
// holds up no others.
func (n *notices) run(ctx context.Context) error {
	past, err := n.told.List(ctx)
	if err != nil {
		return err
	}
	n.recall(past)
	results := make(chan result, noticesAtOnce)
	sending := pool.New()
	defer sending.Wait()
	for look := time.Now(); ctx.Err() == nil; {
		if now := time.Now(); !now.Before(look) {
			var again time.Duration
			n.waiting, again = n.due(ctx, now)
			look = now.Add(again)
		}
		n.waiting = slices.DeleteFunc(n.waiting, func(what notice.Notice) bool {
			room := n.flight.begin(what)
			if room {
				sending.Go(func() { results <- result{what, n.sender.Send(ctx, what)} })
			}
			return room
		})
		timer := time.NewTimer(time.Until(look))
		select {
		case <-ctx.Done():
		case <-n.changed:
			look = time.Now()
		case r := <-results:
			n.flight.end(r.Notice)
			if again := time.Now().Add(n.note(ctx, r, time.Now())); again.Before(look) {
				look = again
			}
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// recall takes over what was sent before this process began.
func (n *notices) recall(past []bus.Entry[train.Notices]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range past {
		id := train.JobID(e.Key)
		n.done[id] = e.Value.Told
		if _, known := n.jobs[id]; !known {
			n.gone[id] = true
		}
	}
}

// due returns the notices to send now, and when to look again.
func (n *notices) due(ctx context.Context, now time.Time) (due []notice.Notice, again time.Duration) {
	again = noticeInterval
	for _, j := range n.known(ctx) {
		facts := notice.Facts{Silent: n.silent(ctx, j, now)}
		if own, is := n.users[j.Spec.User]; is {
			facts.Own = []train.NotifySpec{own}
		}
		open := 0
		for _, what := range notice.Of(j, facts, now) {
			failed := n.failed[j.ID][what.Key]
			if !n.done[j.ID][what.Key].IsZero() || now.Sub(what.At) > noticeKept && failed.tries == 0 {
				continue
			}
			open++
			_, underWay := n.flight.jobs[what.Key]
			switch wait := failed.next.Sub(now); {
			case underWay:
			case wait > 0:
				again = min(again, wait)
			default:
				due = append(due, what)
			}
		}
		if open == 0 && j.State.Terminal() {
			n.settle(j)
		}
	}
	return due, again
}

// result is how the delivery of a notice ended.
type result struct {
	notice.Notice
	err error
}

// note records how a delivery ended, and returns how long until the next one if it failed.
func (n *notices) note(ctx context.Context, r result, now time.Time) time.Duration {
	if r.err != nil && now.Sub(r.At) < noticeKept {
		f := n.failed[r.Job][r.Key]
		pause := min(firstNoticePause<<min(f.tries, 10), longestNoticePause)
		pause += rand.N(pause / 4)
		if n.failed[r.Job] == nil {
			n.failed[r.Job] = map[string]failure{}
		}
		n.failed[r.Job][r.Key] = failure{f.tries + 1, now.Add(pause)}
		if ctx.Err() == nil {
			n.log.Warn("a notice was not delivered", "job", r.Job, "notice", r.Key, "tries", f.tries+1, "error", r.err)
		}
		return pause
	}
	if r.err != nil {
		n.log.Error("a notice is given up", "job", r.Job, "notice", r.Key, "error", r.err)
	}
	delete(n.failed[r.Job], r.Key)
	e, err := n.told.Modify(ctx, string(r.Job), func(all *train.Notices) (bool, error) {
		if all.Told == nil {
			all.Told = map[string]time.Time{}
		}
		all.Told[r.Key] = now
		return true, nil
	})
	if err != nil {
		// It was delivered: it is sent again only if this process ends before it could write that down.
		n.log.Error("a notice that was delivered is not recorded", "notice", r.Key, "error", err)
		if n.done[r.Job] == nil {
			n.done[r.Job] = map[string]time.Time{}
		}
		n.done[r.Job][r.Key] = now
		return noticeInterval
	}
	n.done[r.Job] = e.Value.Told
	return noticeInterval
}

// known returns the jobs to look at, and forgets those without a record.
func (n *notices) known(ctx context.Context) []train.Job {
	n.mu.Lock()
	all, gone := slices.Collect(maps.Values(n.jobs)), slices.Collect(maps.Keys(n.gone))
	n.mu.Unlock()
	for _, id := range gone {
		if n.forget(ctx, id) {
			n.mu.Lock()
			delete(n.gone, id)
			n.mu.Unlock()
		}
	}
	return all
}

// forget deletes the record of the notices about a job that is gone. It returns false if it has to be tried again: a
// delivery under way would make the record again.
func (n *notices) forget(ctx context.Context, id train.JobID) bool {
	for _, job := range n.flight.jobs {
		if job == id {
			return false
		}
	}
	delete(n.failed, id)
	if n.done[id] == nil {
		return true
	}
	if n.told.Remove(ctx, string(id)) != nil {
		return false
	}
	delete(n.done, id)
	return true
}

// settle forgets a job after its last notice, unless its record has changed meanwhile.
func (n *notices) settle(j train.Job) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.jobs[j.ID].LastSequence == j.LastSequence {
		delete(n.jobs, j.ID)
		delete(n.failed, j.ID)
	}
}

// silent returns why the code of a job counts as silent; nil if it does not, or nobody wants to know.
func (n *notices) silent(ctx context.Context, j train.Job, now time.Time) *train.Reason {
	wanted := false
	for _, to := range j.Spec.Notify {
		wanted = wanted || to.Wants(train.NoticeSilent)
	}
	if !wanted || !j.State.Active() {
		return nil
	}
	attempt, err := n.attempts.Get(ctx, string(j.ID))
	if err != nil {
		return nil
	}
	report, err := n.reports.Get(ctx, contract.ReportKey(j.ID, attempt.Value.Number))
	if err != nil {
		return nil
	}
	if reason, silent := train.Silent(attempt.Value, report.Value, now); silent {
		return &reason
	}
	return nil
}
