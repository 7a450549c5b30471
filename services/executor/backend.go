package executor

import (
	"context"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// backend runs attempts, as processes of this machine or as pods. Every call may be repeated, also by the executor after this one: what is true of an attempt is
// found out by looking. A call that begins something does not wait for its end.
type backend interface {
	// Run does what goes on in the background until ctx ends; news is called with the jobs whose attempts are worth a look. Before Ready gives nil nothing is seen.
	Run(ctx context.Context, news func(...train.JobID)) error
	Ready() error
	// MakeSecrets gives the capability of a job and the token of an attempt before the attempt is claimed, ReadSecrets those of an attempt that was: they are
	// never made anew, and empty where they are gone.
	MakeSecrets(ctx context.Context, job train.JobID, number int) (capability, token string, err error)
	ReadSecrets(ctx context.Context, job train.JobID, number int) (capability, token string, err error)
	// Mounts says whether a job sees its folders under their fixed names.
	Mounts(spec train.Spec) bool
	// Start has those processes of a claimed attempt started that are not there yet.
	Start(ctx context.Context, s launch.Setting) error
	// Starting says whether what Start began is still under way; if it is not, the error says why nothing has come of it.
	Starting(job train.JobID, number int) (bool, error)
	// Refuse records the end of an attempt that cannot be started.
	Refuse(ctx context.Context, a train.Attempt, e train.Exit) error
	// Look says how far an attempt has come.
	Look(ctx context.Context, a train.Attempt) (launch.Sight, error)
	// Follow has changed called when there is news of an attempt that runs.
	Follow(ctx context.Context, a train.Attempt, s launch.Sight, changed func())
	// Retune gives a running attempt system parameters, and says which it could.
	Retune(ctx context.Context, a train.Attempt, s launch.Sight, wanted train.Setting) (train.Applied, error)
	// Stop has the processes of an attempt end: asked first, killed after a while.
	Stop(ctx context.Context, a train.Attempt, now time.Time) error
	// Sweep kills what is left of an attempt that was lost; left is how much was seen.
	Sweep(ctx context.Context, a train.Attempt) (left int, err error)
	// Forget removes what was made for an attempt whose end was told, ForgetAll what was made for a job that has ended long ago.
	Forget(ctx context.Context, a train.Attempt) error
	ForgetAll(ctx context.Context, job train.JobID) error
	// Find lists the attempts of which there is anything, to be compared with the records.
	Find(ctx context.Context) ([]launch.Found, error)
	// Collect is called at every pass. Close waits for what is under way when the context has ended.
	Collect()
	Close()
}
