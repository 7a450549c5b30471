package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// patience is how long an ending program or control group is waited for.
const patience = 20 * time.Second

// politeness is how long a program that is stopped alone may take: the API server would wait for its watchers for
// minutes.
const politeness = 5 * time.Second

// Down ends the cluster, whatever is left of it, and removes its folder.
func (c *Cluster) Down() error {
	if err := c.end(); err != nil {
		return err
	}
	// The configuration goes last: as long as it lies there, Down can be asked again.
	for _, name := range contents() {
		if err := os.RemoveAll(c.path(name)); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	err := os.Remove(c.Dir)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EBUSY) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}

// end ends every process of the cluster and takes away what is outside its folder. Mounts and networks end with the
// last process in the node's namespaces. Nothing is asked to end politely: no data outlives the cluster.
func (c *Cluster) end() error {
	for program, p := range c.processes() {
		if !p.alive() {
			continue
		}
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill %s: %w", program, err)
		}
		if !poll(patience, func() bool { return !p.alive() }) {
			return fmt.Errorf("%s, process %d, does not end", program, p.PID)
		}
	}
	if !c.Node {
		return nil
	}
	if err := c.killGroup(patience); err != nil {
		return err
	}
	if err := c.removeCgroups(patience); err != nil {
		return err
	}
	// The kernel takes the wire away with the node's network, a moment later than its processes; and it may never have got
	// there.
	gone := poll(patience, func() bool {
		if c.ownsLink() {
			_ = exec.Command("ip", "link", "delete", c.hostLink()).Run()
		}
		return !c.ownsLink()
	})
	if !gone {
		return fmt.Errorf("link %s does not go", c.hostLink())
	}
	return removeMadeDirs()
}
