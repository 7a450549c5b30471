package supervisor

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// memoryLook is the time between two looks at how much memory the programs take.
const memoryLook = time.Second

// confine makes the control group of the programs. Without one they run as well: the supervisor then watches their
// memory itself.
func (s *supervisor) confine() {
	bounded, err := s.launch.OwnGroup().Make(s.memory())
	bounded = bounded || s.launch.Held && s.launch.Bounded
	if err != nil {
		fmt.Fprintf(os.Stderr, "supervisor: %v\n", err)
	}
	if s.bounded = bounded; err != nil && s.launch.OwnGroup().Remove() == nil {
		s.launch.Group = ""
	}
	if s.memory() > 0 {
		s.looks = time.NewTicker(memoryLook)
	}
}

// memory is the main memory that the programs may take together; 0 is no bound.
func (s *supervisor) memory() unit.Bytes { return unit.Bytes(s.launch.MemoryMiB) * unit.MiB }

// look returns the channel that says that the memory is to be looked at.
func (s *supervisor) look() <-chan time.Time {
	if s.looks == nil {
		return nil
	}
	return s.looks.C
}

// checkMemory ends the attempt if its programs have taken more memory than they may. It is no failure of the machine,
// and nothing is gained by asking the programs first: they are killed.
func (s *supervisor) checkMemory() {
	if s.memory() == 0 || s.failed || s.finished || s.forced {
		return
	}
	took := s.memory()
	switch {
	case s.bounded && !s.launch.Group.OutOfMemory():
		return
	case !s.bounded:
		pids, err := attempt.Descendants(os.Getpid())
		if took = unit.Bytes(attempt.Kernel.Memory(pids, int64(s.memory()))); err != nil || took <= s.memory() {
			return
		}
	}
	s.blame(train.Exit{Signal: "SIGKILL", Reason: outOfMemory(s.launch, took)})
	s.kill = time.After(0)
}

// outOfMemory says how much the programs took and may take, and what helps.
func outOfMemory(l attempt.Launch, took unit.Bytes) train.Reason {
	asked, each := unit.Bytes(l.MemoryMiB)*unit.MiB, int64(0)
	for _, p := range l.Processes {
		each = max(each, p.MemoryMiB)
	}
	words := fmt.Sprintf("its processes took all of the %s of main memory that it asked for, and needed more", asked.Exact())
	if took > asked {
		words = fmt.Sprintf("its processes took %s of main memory, and it asked for %s", took, asked.Exact())
	}
	more := strings.ReplaceAll((2 * unit.Bytes(each) * unit.MiB).Exact(), " ", "")
	return train.Reason{
		Code: train.OutOfMemory, Message: words,
		Hint: fmt.Sprintf("`switchyard set %s memory=%s` and `switchyard resume %s` continue it with more; or use smaller batches or fewer data loaders", l.Job, more, l.Job),
	}
}
