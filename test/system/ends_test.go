package system

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
)

// TestAJobThatEndsWithoutItsAgentLosesNoEpoch: its last epochs and its outcome reach the agent once that is back, and
// the record has no warning.
func TestAJobThatEndsWithoutItsAgentLosesNoEpoch(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("bus")
	c.connect()
	for _, s := range serviceNames() {
		c.start(s)
	}
	const epochs = 6
	c.submit("only", epochs, 1)
	trainer := c.trained("only", 2)
	c.kill("nodeagent", syscall.SIGKILL)
	c.trained("only", epochs)
	c.eventually("the trainer has ended", func() error {
		if slices.Contains(c.trainers(), trainer) {
			return fmt.Errorf("%w: process %d", errNotListed, trainer)
		}
		return nil
	})
	c.start("nodeagent")
	job := c.verify(map[string]int{"only": epochs}, nil)["only"]
	if told := c.epochs("only"); len(told) != epochs || len(job.Warnings) > 0 {
		t.Errorf("%d epochs have figures, want %d; warnings %q", len(told), epochs, job.Warnings)
	}
}
