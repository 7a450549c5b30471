package cluster

import (
	"errors"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// full is a file on a disk that has no room.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

// Facts that were not written are missing in a file that looks complete.
func TestEventsThatCannotBeWrittenAreAnError(t *testing.T) {
	s := clitest.New(t)
	for _, id := range []train.JobID{"a", "b"} {
		clitest.Publish(t, s.Bus, event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: train.Spec{Name: "x"}}))
	}
	s.Stdout = full{}
	for _, s.Output = range []string{"table", "json"} {
		for _, once := range []bool{true, false} {
			if err := Follow(t.Context(), s.Console, s.Bus, []string{event.StreamJobs}, true, once, ""); !errors.Is(err, errFull) {
				t.Errorf("-o %s, once %v: %v", s.Output, once, err)
			}
		}
	}
}
