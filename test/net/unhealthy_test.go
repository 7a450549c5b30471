package net

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestAnAgentThatIsKilledOrStoppedIsNoLossyLink(t *testing.T) {
	c := newCluster(t)
	c.awaitPaths()
	seen := c.followTurns()
	<-time.After(30 * time.Second) // all agents have reported
	c.signal("host1", syscall.SIGKILL)
	c.signal("host5", syscall.SIGSTOP)
	c.awaitUnhealthy("host1", train.NodeIsSilent)
	c.awaitUnhealthy("host5", train.NodeIsSilent)
	c.signal("host5", syscall.SIGCONT)
	c.awaitUnhealthy("host5", train.NodeIsStalled)
	c.signal("host6", syscall.SIGSTOP)
	<-time.After(5 * time.Second) // it resumes before it is missed
	c.signal("host6", syscall.SIGCONT)
	c.awaitUnhealthy("host6", train.NodeIsStalled)
	<-time.After(40 * time.Second) // the windows with these slots have been judged
	if stated := seen.take(); len(stated) > 0 {
		t.Errorf("links were named: %v", stated)
	}
}

func (c *cluster) signal(process string, s syscall.Signal) {
	c.t.Helper()
	if err := c.processes[process].Signal(s); err != nil {
		c.t.Fatalf("%v %s: %v", s, process, err)
	}
}

// awaitUnhealthy waits until the profiler reports a node's trouble.
func (c *cluster) awaitUnhealthy(node string, why train.NodeTrouble) {
	c.t.Helper()
	until(c.t, 2*time.Minute, func() (bool, string) {
		log, err := os.ReadFile(filepath.Join(c.dir, "profiler.log"))
		if err != nil {
			return false, err.Error()
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "say nothing of links") && strings.Contains(line, node) && strings.Contains(line, string(why)) {
				return true, ""
			}
		}
		return false, node + " is not said to be " + string(why)
	})
}
