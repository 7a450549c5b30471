package profiler

import (
	"context"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/learn"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// publishEstimate publishes an estimate. since tells the trainings of a job apart, as in publishConverged: a job that
// began again reaches its epochs a second time.
func (s *store) publishEstimate(ctx context.Context, id train.JobID, since int, e *event.Reestimated) error {
	if e == nil {
		return nil
	}
	f := event.JobFact(id, event.FactReestimated, fmt.Sprintf("training/%d/estimate/%d", since, e.EpochsDone), *e)
	if err := s.bus.Publish(ctx, f); err != nil {
		return err
	}
	s.estimator.note(id, func(j *learn.Job) { j.Published = e })
	s.metrics.estimates.Inc()
	s.log.Info("estimate corrected", "job", id, "epochs_done", e.EpochsDone, "total_seconds", e.TotalSeconds, "penalty", e.PriorityPenalty)
	return nil
}

// publishStraggler publishes a slow worker; the model that names it follows in the next round.
func (s *store) publishStraggler(ctx context.Context, id train.JobID, found *event.Straggling) error {
	if found == nil {
		return nil
	}
	found.FoundAt = time.Now().UTC()
	if err := s.bus.Publish(ctx, event.JobFact(id, event.FactStraggling, fmt.Sprintf("attempt/%d/straggling", found.Attempt), *found)); err != nil {
		return err
	}
	s.estimator.note(id, func(j *learn.Job) { j.Straggled(found.Straggler) })
	s.estimator.requeue(id)
	s.estimator.wake.Send()
	s.log.Info("worker slows down the others", "job", id, "attempt", found.Attempt, "rank", found.Rank, "node", found.Node, "device", found.Device, "slowdown", found.Slowdown)
	return nil
}

// publishConverged publishes that the loss of a job has converged. Another profiler may have published it already.
func (s *store) publishConverged(ctx context.Context, id train.JobID, since int, c *event.Converged) error {
	if c == nil {
		return nil
	}
	if err := s.bus.Publish(ctx, event.JobFact(id, event.FactConverged, fmt.Sprintf("training/%d/converged", since), *c)); err != nil {
		return err
	}
	s.estimator.note(id, func(j *learn.Job) { j.HasConverged = true })
	s.log.Info("loss has converged", "job", id, "epochs_done", c.EpochsDone, "loss_decrease", c.LossDecrease)
	return nil
}
