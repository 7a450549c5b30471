package executor

import (
	"context"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// straySweeper ends attempts without a record.
type straySweeper struct {
	*shared
	backend backend
	realm   diff.Realm
	// found are the attempts that are being ended.
	found []launch.Found
}

// sweep ends supervisors without a record (the record was lost with the bus), and forgets the files of attempts
// whose end was published.
func (s *straySweeper) sweep(ctx context.Context) {
	if s.cache.synced.orphansDue() {
		found, err := s.backend.Find(ctx)
		s.faults.warn(ctx, "machine not searched", "", err)
		s.found = slices.DeleteFunc(found, func(f launch.Found) bool {
			a, _ := s.cache.attempt(f.Job)
			return a.Number == f.Number && (a.Live() || !a.Published)
		})
		for _, f := range s.found {
			if f.Phase == launch.Running || f.Phase == launch.Starting {
				s.log.Warn("ending a job without a record", "job", f.Job, "attempt", f.Number)
			}
		}
	}
	s.found = slices.DeleteFunc(s.found, func(f launch.Found) bool {
		stray := train.Attempt{Job: f.Job, Number: f.Number, Backend: s.realm.Backend, Node: s.realm.Machine}
		status, err := s.backend.Status(ctx, stray)
		over := status.Phase == launch.Exited
		switch {
		case err != nil:
		case status.Phase == launch.Lost:
			var left int
			left, err = s.backend.Sweep(ctx, stray)
			over = left == 0
		case !over:
			err = s.backend.Stop(ctx, stray, time.Now())
		}
		if err == nil && over {
			err = s.backend.Forget(ctx, stray)
		}
		s.faults.warn(ctx, "stray job not ended", f.Job, err)
		return err == nil && over
	})
}
