package executor

import (
	"context"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// backend runs attempts, as processes of this machine or as pods. Every call may be repeated, even by a later executor:
// what is true of an attempt is found out by looking. A call that begins something does not wait for its end.
type backend interface {
	// Run does the background work until ctx ends. It calls notify with the jobs whose attempts should be looked at.
	Run(ctx context.Context, notify func(...train.JobID)) error
	// Ready returns nil once statuses can be reported.
	Ready() error
	// Mounts reports whether a job sees its folders under their fixed names.
	Mounts(spec train.Spec) bool

	// Vacate makes way for a job that has never started: it no longer finds what an earlier job with its id has left.
	Vacate(job train.JobID) error
	// FindSaved looks for what a job has saved, before its next attempt is claimed. It returns false if nothing is left.
	FindSaved(job train.Job, last train.Attempt) (bool, error)
	// Namespace returns where the pods of a job are to be; empty if it runs as processes.
	Namespace(spec train.Spec) string
	// MakeSecrets returns the capability of a job and the token of an attempt before the attempt is claimed. The error is
	// a launch.RefusedError if they cannot be kept for it. ReadSecrets returns those of a claimed attempt: it never makes
	// new ones, and returns empty strings if they are gone.
	MakeSecrets(ctx context.Context, a train.Attempt) (capability, token string, err error)
	ReadSecrets(ctx context.Context, a train.Attempt) (capability, token string, err error)
	// Secrets returns the values of the secret variables of a job, unless its processes get them otherwise. The error is
	// launch.ErrSecret if the job cannot have one.
	Secrets(ctx context.Context, spec train.Spec) (map[string]string, error)
	// Start starts the missing processes of a claimed attempt.
	Start(ctx context.Context, s launch.Setting) error
	// Starting reports whether what Start began is still under way; if not, the error says why nothing has come of it.
	Starting(a train.Attempt) (bool, error)
	// Refuse records the end of an attempt that cannot be started.
	Refuse(ctx context.Context, a train.Attempt, e train.Exit) error

	// Status returns how far an attempt has got.
	Status(ctx context.Context, a train.Attempt) (launch.Status, error)
	// Follow calls changed when a running attempt changes.
	Follow(ctx context.Context, a train.Attempt, s launch.Status, changed func())
	// Retune gives a running attempt system parameters, and returns which ones it has. To an attempt that has exited it
	// gives nothing.
	Retune(ctx context.Context, a train.Attempt, s launch.Status, wanted train.Setting) (train.Applied, error)

	// HandOver begins to give the agent at an address what the code of an ended attempt could not report. It returns what
	// the agent has still to take; nil if nothing is left.
	HandOver(ctx context.Context, a train.Attempt, agent string) (*train.Unreported, error)

	// Stop makes the processes of an attempt end: it asks them first and kills them after a while.
	Stop(ctx context.Context, a train.Attempt, now time.Time) error
	// Sweep kills what is left of a lost attempt and returns how much it found.
	Sweep(ctx context.Context, a train.Attempt) (left int, err error)
	// Find lists the attempts that left anything, to be compared with the records.
	Find(ctx context.Context) ([]launch.Found, error)
	// Forget removes what was made for an attempt whose end was published. ForgetAll removes what was made for a job
	// that ended long ago.
	Forget(ctx context.Context, a train.Attempt) error
	ForgetAll(ctx context.Context, job train.JobID) error
}
