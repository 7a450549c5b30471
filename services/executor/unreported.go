package executor

import (
	"context"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// handOver gives the agent of an attempt what its code could not report, before its end is recorded: later it would be
// fenced off. If the agent takes nothing for a while, the record of the attempt has what is left. again is the delay
// until the next try.
func (e *executor) handOver(ctx context.Context, a *train.Attempt) (again time.Duration, err error) {
	left, err := e.backend.HandOver(ctx, *a, e.cache.home(*a).JobAPI)
	if err != nil {
		return 0, fmt.Errorf("hand over the reports of %s: %w", a.Job, err)
	}
	key := diff.ReportKey{Job: a.Job, Number: a.Number}
	if left == nil {
		delete(e.handingOver, key)
		return 0, nil
	}
	wait, begun := e.handingOver[key]
	if !begun {
		e.log.Info("the end of an attempt waits for the agent of its node, which has still to take its reports", "job", a.Job, "attempt", a.Number, "reports", left.Reports)
	}
	if wait = wait.Next(left.Reports, time.Now()); !wait.Over(time.Now()) {
		e.handingOver[key] = wait
		return launch.Later, nil
	}
	delete(e.handingOver, key)
	e.metrics.unreported.Add(float64(left.Reports))
	e.log.Warn("the agent of a node is away: epochs of an ended attempt count, their figures are lost", "job", a.Job, "attempt", a.Number, "node", a.Home(),
		"reports", left.Reports, "epochs_done", left.EpochsDone)
	a.Unreported = left
	return 0, nil
}
