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
	c.awaitAiling("host1", train.NodeIsSilent)
	c.awaitAiling("host5", train.NodeIsSilent)
	c.signal("host5", syscall.SIGCONT)
	c.awaitAiling("host5", train.NodeIsStalled)
	c.signal("host6", syscall.SIGSTOP)
	<-time.After(5 * time.Second) // it goes on before anybody misses it
	c.signal("host6", syscall.SIGCONT)
	c.awaitAiling("host6", train.NodeIsStalled)
	<-time.After(40 * time.Second) // the windows with these slots have been judged
	if said := seen.take(); len(said) > 0 {
		t.Errorf("links were named: %v", said)
	}
}

func (c *cluster) signal(process string, s syscall.Signal) {
	c.t.Helper()
	if err := c.processes[process].Signal(s); err != nil {
		c.t.Fatalf("%v %s: %v", s, process, err)
	}
}

// awaitAiling waits until the profiler says what a node suffers from.
func (c *cluster) awaitAiling(node string, why train.Ailment) {
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
