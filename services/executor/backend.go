package executor

import (
	"context"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// backend runs attempts, as processes of this machine or as pods. Every call may be repeated, even by a later executor:
// what is true of an attempt is found out by looking. A call that begins something does not wait for its end. Each part
// of the executor uses its own share of it.
type backend interface {
	launcher
	tuner
	finder
	attemptKeeper
	// Run does the background work until ctx ends. It calls notify with the jobs whose attempts should be looked at.
	Run(ctx context.Context, notify func(...train.JobID)) error
}

// attemptKeeper watches and ends attempts.
type attemptKeeper interface {
	stopper
	// Mounts reports whether a job sees its folders under their fixed names.
	Mounts(spec train.Spec) bool
	// Status returns how far an attempt has got.
	Status(ctx context.Context, a train.Attempt) (launch.Status, error)
	// Follow calls changed when a running attempt changes.
	Follow(ctx context.Context, a train.Attempt, s launch.Status, changed func())
	// Forget removes what was made for an attempt whose end was published. ForgetAll removes what was made for a job
	// that ended long ago.
	Forget(ctx context.Context, a train.Attempt) error
	ForgetAll(ctx context.Context, job train.JobID) error
}

// stopper ends the processes of attempts.
type stopper interface {
	// Stop makes the processes of an attempt end: it asks them first and kills them after a while.
	Stop(ctx context.Context, a train.Attempt, now time.Time) error
	// Sweep kills what is left of a lost attempt and returns how much it found.
	Sweep(ctx context.Context, a train.Attempt) (left int, err error)
}
