package executor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestAProgramThatFailsForOurFullDiskIsTriedAgain: it names the disk, whatever the program says. However often that
// happens, the job does not fail for it, and it goes on once there is room.
func TestAProgramThatFailsForOurFullDiskIsTriedAgain(t *testing.T) {
	t.Parallel()
	dir := bustest.SmallDisk(t, "40")
	y := newYardIn(t, dir)
	never := 0
	spec := command(`[ $SWITCHYARD_ATTEMPT -gt 1 ] && exit 0
head -c 60000000 /dev/zero > filler
echo "cannot save" >&2; exit 1`)
	spec.MaxRestarts = &never
	y.job("j1", spec)
	y.plan(on("j1", "cpu:0"))
	first := fact[event.AttemptLost](y, "j1", event.FactAttemptLost)
	if first.Exit.Reason.Code != train.DiskFull || !strings.Contains(first.Exit.Reason.Message, dir) || first.Retry != 0 {
		t.Errorf("the first end: %+v", first)
	}
	refused := y.attempt("j1", "is not started while the disk is full", func(a train.Attempt) bool { return a.Number > 2 && a.Exit != nil && a.Exit.Unstarted })
	if refused.Exit.Reason.Code != train.DiskFull {
		t.Errorf("refused: %+v", refused.Exit)
	}
	y.must(os.Remove(filepath.Join(installation.Layout{DataDir: dir}.Work("j1"), "filler")))
	y.attempt("j1", "succeeds once there is room", func(a train.Attempt) bool { return a.Outcome == train.OutcomeSucceeded })
}
