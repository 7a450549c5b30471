package launch

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Sight is what is seen of an attempt.
type Sight struct {
	Phase Phase
	// Again is after how long another look may see something else without any news of it; 0 where whatever happens will be news.
	Again time.Duration
	// Present is how many of its processes were seen: while it grows, starting the others is not tried in vain.
	Present int
	// PID, PIDStart and BootID are of the supervisor, where there is one; StartedAt is when all programs had been started.
	PID       int
	PIDStart  uint64
	BootID    string
	StartedAt time.Time
	// Exit and ExitedAt are of an exit that was recorded; Exit is also the trouble of an attempt that is Ending.
	Exit     train.Exit
	ExitedAt time.Time
}

const (
	// Soon is after how long to look again while processes are about to appear or to vanish.
	Soon = 20 * time.Millisecond
	// Later is after how long to look again at anything else that tells nothing by itself.
	Later = time.Second
)

// Phase is how far an attempt has come.
type Phase int

// The phases. Processes of an attempt that is Absent may be started, those of any other one must not.
const (
	Absent Phase = iota
	Starting
	Running
	// Ending: some of the processes are in trouble, or all workers are done, and others are still there, which have to end.
	Ending
	Exited
	// Lost: the attempt was started, nothing of it is to be seen, and nothing tells how it ended.
	Lost
)

// Found is an attempt of which something was found.
type Found struct {
	Job    train.JobID
	Number int
	Phase  Phase
}

// CannotStart is the status that shells give for a program that cannot be run.
const CannotStart = 127

// Forbidden is the code of a reason: the attempt may not be made as it is, now or ever.
const Forbidden = "Forbidden"
