package launch

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Status is what a back end sees of an attempt.
type Status struct {
	Phase Phase
	// Again is the delay after which the status may change without an event; 0 if every change is an event.
	Again time.Duration
	// Present counts the attempt's processes that exist: while it grows, starting the others makes progress.
	Present int
	// PID, PIDStart and BootID belong to the supervisor, if there is one. StartedAt is when all programs had been
	// started.
	PID       int
	PIDStart  uint64
	BootID    string
	StartedAt time.Time
	// Exit and ExitedAt describe a recorded exit. For an attempt that is Ending, Exit is the failure that ends it.
	Exit     train.Exit
	ExitedAt time.Time
	// Staging is how far the data of the attempt is; nil without any.
	Staging *train.Staging
}

const (
	// Soon is the delay before looking again while processes are about to appear or to vanish.
	Soon = 20 * time.Millisecond
	// Later is the delay before looking again at anything else that sends no events.
	Later = time.Second
)

// Phase is how far an attempt has got.
type Phase int

// The phases. Processes may be started only for an attempt that is Absent.
const (
	Absent Phase = iota
	Starting
	Running
	// Ending: some processes have failed, or all workers are done, and the other processes still have to end.
	Ending
	Exited
	// Lost: the attempt was started, none of its processes exist, and no record says how it ended.
	Lost
)

// Found is an attempt that left something on the machine or the cluster.
type Found struct {
	Job    train.JobID
	Number int
	// Namespace is where its pods are.
	Namespace string
	Phase     Phase
	// Made is when its last object was made, zero where that is not known: the record of a young one may be on its way.
	Made time.Time
}

// CannotStart is the exit status that shells use for a program that cannot be run.
const CannotStart = 127

// Forbidden is a reason code: the attempt may never be made as it is.
const Forbidden = train.Forbidden

// RefusedError says that an attempt that is not claimed yet cannot be started, and what its end is.
type RefusedError struct{ Exit train.Exit }

// Error says why.
func (e *RefusedError) Error() string { return e.Exit.Words() }

// NotStaged returns the exit of an attempt whose data could not be fetched. It is not the fault of its code, so another
// one follows, unless none can ever have the data.
func NotStaged(why string, never bool) train.Exit {
	reason := train.Reason{
		Code: train.NotStaged, Message: why,
		Hint: "it is fetched again; `curl -I` on the node shows whether the address answers, and a signed address may have expired",
	}
	if never {
		reason.Hint = "correct the address, or give the folder as datasets_dir"
		return train.Exit{Code: CannotStart, Message: why, Reason: reason}
	}
	return train.Exit{Lost: true, Unstarted: true, Reason: reason}
}
