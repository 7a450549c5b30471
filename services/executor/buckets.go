package executor

import (
	"context"
	"errors"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// buckets are the records that the executor reads; it writes attempts and conditions.
type buckets struct {
	attempts *bus.KV[train.Attempt]
	jobs     *bus.KV[train.Job]
	nodes    *bus.KV[train.Node]
	settings *bus.KV[train.Setting]
	reports  *bus.KV[train.AttemptReport]
	// conditions are written by the executor of pods.
	conditions *bus.KV[train.NodeCondition]
}

func openBuckets(ctx context.Context, b *bus.Bus) (kv buckets, err error) {
	err = errors.Join(
		bus.Open(ctx, b, contract.Attempts, &kv.attempts), bus.Open(ctx, b, contract.Jobs, &kv.jobs),
		bus.Open(ctx, b, contract.Nodes, &kv.nodes), bus.Open(ctx, b, contract.Reports, &kv.reports),
		bus.Open(ctx, b, contract.Settings, &kv.settings), bus.Open(ctx, b, contract.Conditions, &kv.conditions),
	)
	return kv, err
}

func (kv buckets) watch(loops *pool.ContextPool, c *cache) {
	s := c.synced
	loops.Go(func(ctx context.Context) error {
		return kv.attempts.Watch(ctx, c.onAttempt, s.mark(&s.attempts, &s.orphans))
	})
	loops.Go(func(ctx context.Context) error { return kv.jobs.WatchShared(ctx, c.onJob, s.mark(&s.jobs)) })
	loops.Go(func(ctx context.Context) error { return kv.nodes.Watch(ctx, c.onNode, s.mark(&s.nodes)) })
	loops.Go(func(ctx context.Context) error { return kv.reports.Watch(ctx, c.onReport, s.mark(&s.reports)) })
	loops.Go(func(ctx context.Context) error { return kv.settings.Watch(ctx, c.onSetting, s.mark(&s.settings)) })
}
