package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/lab/live"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// watched is a change of a record.
type watched struct {
	node    *train.Node
	job     *train.Job
	attempt *train.Attempt
	at      time.Time
}

// Play waits for the nodes, submits each job in its time, and returns when all have ended. seen, if not nil, is called
// after each end with the number of jobs that have ended.
func (c Config) Play(ctx context.Context, url string, jobs []live.Job, seen func(done int)) (live.Outcome, error) {
	b, err := bus.Connect(ctx, bus.Config{URL: url, Keys: string(c.keys()), Name: "bench"})
	if err != nil {
		return live.Outcome{}, err
	}
	defer b.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	changes := make(chan watched)
	watches := pool.New().WithContext(ctx).WithCancelOnError()
	defer func() { stop(nil); _ = watches.Wait() }()
	send := func(w watched) {
		w.at = time.Now()
		select {
		case changes <- w:
		case <-ctx.Done():
		}
	}
	watch(watches, b, contract.Nodes, func(n train.Node) { send(watched{node: &n}) })
	watch(watches, b, contract.Jobs, func(j train.Job) { send(watched{job: &j}) })
	watch(watches, b, contract.Attempts, func(a train.Attempt) { send(watched{attempt: &a}) })

	p := &play{outcome: live.Outcome{Jobs: map[train.JobID]train.Job{}}, nodes: map[train.NodeID]train.Node{}, attempts: map[string]*live.Attempt{}}
	for len(p.nodes) < c.Nodes {
		if err := p.next(ctx, changes, nil); err != nil {
			return p.outcome, fmt.Errorf("wait for %d nodes, %d have come: %w", c.Nodes, len(p.nodes), err)
		}
	}
	p.outcome.Began = time.Now()
	waiting := slices.SortedStableFunc(slices.Values(jobs), live.Earlier)
	due := time.NewTimer(0)
	defer due.Stop()
	for p.ended < len(jobs) {
		if len(waiting) > 0 {
			due.Reset(time.Until(p.outcome.Began.Add(time.Duration(waiting[0].Seconds * float64(time.Second)))))
		}
		ended := p.ended
		if err := p.next(ctx, changes, due.C); err != nil {
			return p.outcome, fmt.Errorf("%d of %d jobs have ended: %w", p.ended, len(jobs), err)
		}
		if p.ended > ended && seen != nil {
			seen(p.ended)
		}
		if !p.ring {
			continue
		}
		p.ring = false
		j := waiting[0]
		waiting = waiting[1:]
		if err := b.Publish(ctx, event.OnceFact(j.ID, event.FactSubmitted, "submitted", event.Submitted{Spec: j.Spec})); err != nil {
			return p.outcome, fmt.Errorf("submit %s: %w", j.ID, err)
		}
	}
	return p.finish(), nil
}

func watch[T any](watches *pool.ContextPool, b *bus.Bus, bucket contract.Bucket[T], see func(T)) {
	watches.Go(func(ctx context.Context) error {
		kv, err := bus.OpenKV(ctx, b, bucket)
		if err != nil {
			return err
		}
		return kv.Watch(ctx, func(e bus.Entry[T], deleted bool) {
			if !deleted {
				see(e.Value)
			}
		}, nil)
	})
}

// play is what has been seen so far.
type play struct {
	outcome  live.Outcome
	nodes    map[train.NodeID]train.Node
	attempts map[string]*live.Attempt
	ended    int
	// ring is set if the timer has fired.
	ring bool
}

// next takes in one change, or notes that the timer has fired.
func (p *play) next(ctx context.Context, changes <-chan watched, due <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-due:
		p.ring = true
	case w := <-changes:
		return p.see(w)
	}
	return nil
}

func (p *play) see(w watched) error {
	switch {
	case w.node != nil:
		p.nodes[w.node.ID] = *w.node
	case w.attempt != nil:
		p.seeAttempt(*w.attempt, w.at)
	case w.job.State.Terminal():
		if _, known := p.outcome.Jobs[w.job.ID]; !known {
			p.outcome.Jobs[w.job.ID] = *w.job
			p.ended++
		}
		if w.job.State != train.StateSucceeded {
			return fmt.Errorf("job %s: %s: %s %v", w.job.ID, w.job.State, w.job.Message, w.job.Blockers)
		}
	}
	return nil
}

func (p *play) seeAttempt(a train.Attempt, at time.Time) {
	key := contract.ReportKey(a.Job, a.Number)
	seen := p.attempts[key]
	if seen == nil {
		seen = &live.Attempt{Job: a.Job, Number: a.Number, Places: a.Places(), Claimed: at}
		p.attempts[key] = seen
	}
	if a.Published && seen.Judged.IsZero() {
		seen.Judged = at
	}
}

func (p *play) finish() live.Outcome {
	for _, n := range p.nodes {
		p.outcome.Nodes = append(p.outcome.Nodes, n)
	}
	slices.SortFunc(p.outcome.Nodes, func(x, y train.Node) int { return cmp.Compare(x.ID, y.ID) })
	for _, a := range p.attempts {
		p.outcome.Attempts = append(p.outcome.Attempts, *a)
	}
	return p.outcome
}
