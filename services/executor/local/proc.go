package local

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/proc"
)

// kernel reads the processes of this machine.
const kernel = proc.Root("/proc")

// descendants returns the descendants of a process, without the process itself.
func descendants(of int) ([]int, error) {
	all, err := kernel.Living()
	if err != nil {
		return nil, err
	}
	tree := proc.NewForest(all).Tree(of, all[of].Start)
	delete(tree, of)
	return slices.Collect(maps.Keys(tree)), nil
}

// leftovers finds what is left of an attempt whose supervisor is gone: processes of its session, which the supervisor
// leads, processes that carry its marker, and the descendants of both. If the session number was given out again, the
// process of that number is alive with another start time.
func leftovers(sup supervisorFile, marker string) ([]int, error) {
	all, err := kernel.Living()
	if err != nil {
		return nil, err
	}
	session := sup.PID
	if s, alive := all[session]; alive && s.Start != sup.PIDStart {
		session = 0
	}
	name, value, marked := strings.Cut(marker, "=")
	forest, found := proc.NewForest(all), map[int]proc.Stat{}
	for pid, s := range all {
		if _, known := found[pid]; known || pid == os.Getpid() {
			continue
		}
		if session > 0 && s.Session == session || marked && kernel.Variable(pid, name) == value {
			maps.Copy(found, forest.Tree(pid, s.Start))
		}
	}
	return slices.Collect(maps.Keys(found)), nil
}

// bootID identifies the run of the kernel; process numbers mean nothing beyond it. It is empty if the kernel does not
// report it.
func bootID() string {
	id, _ := kernel.BootID()
	return id
}

func signalName(s unix.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
