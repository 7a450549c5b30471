package profiler

import (
	"context"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// tellEstimate publishes an estimate; nil is none.
func (t *teacher) tellEstimate(ctx context.Context, id train.JobID, e *event.Reestimated) error {
	if e == nil {
		return nil
	}
	f := event.JobFact(id, event.FactReestimated, fmt.Sprintf("estimate/%d", e.EpochsDone), *e)
	if err := t.bus.Publish(ctx, f); err != nil {
		return err
	}
	t.learner.told(id, func(j *job) { j.told = e })
	t.meters.estimates.Inc()
	t.log.Info("estimate corrected", "job", id, "epochs_done", e.EpochsDone, "total_seconds", e.TotalSeconds, "penalty", e.PriorityPenalty)
	return nil
}

// tellStraggler publishes a slow worker; the model that names it follows in the next round.
func (t *teacher) tellStraggler(ctx context.Context, id train.JobID, s *event.Straggling) error {
	if s == nil {
		return nil
	}
	s.ToldAt = time.Now().UTC()
	if err := t.bus.Publish(ctx, event.JobFact(id, event.FactStraggling, fmt.Sprintf("attempt/%d/straggling", s.Attempt), *s)); err != nil {
		return err
	}
	t.learner.told(id, func(j *job) { j.straggled(s.Straggler) })
	t.learner.again(id)
	t.learner.stir()
	t.log.Info("worker holds up the others", "job", id, "attempt", s.Attempt, "rank", s.Rank, "node", s.Node, "device", s.Device, "slowdown", s.Slowdown)
	return nil
}

// tellConverged publishes that a job has come to its end. Another profiler may have said so already.
func (t *teacher) tellConverged(ctx context.Context, id train.JobID, c *event.Converged) error {
	if c == nil {
		return nil
	}
	if err := t.bus.Publish(ctx, event.OnceFact(id, event.FactConverged, "converged", *c)); err != nil {
		return err
	}
	t.learner.told(id, func(j *job) { j.converged = true })
	t.log.Info("loss has converged", "job", id, "epochs_done", c.EpochsDone, "loss_decrease", c.LossDecrease)
	return nil
}
