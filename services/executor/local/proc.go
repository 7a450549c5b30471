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

// kernel tells of the processes of this machine.
const kernel = proc.Root("/proc")

// living are all processes but zombies.
func living() (map[int]proc.Stat, error) {
	all, err := kernel.Processes()
	maps.DeleteFunc(all, func(_ int, s proc.Stat) bool { return s.Over() })
	return all, err
}

// descendants of a process, not itself.
func descendants(of int) ([]int, error) {
	all, err := living()
	if err != nil {
		return nil, err
	}
	tree := proc.NewForest(all).Tree(of, all[of].Start)
	delete(tree, of)
	return slices.Collect(maps.Keys(tree)), nil
}

// leftovers finds what is left of an attempt whose supervisor is gone: processes of its session, which begins with the supervisor, processes that carry
// its marker, and the descendants of both. A session number that was given out anew belongs to a process that is alive under it.
func leftovers(supervisor shimFile, marker string) ([]int, error) {
	all, err := living()
	if err != nil {
		return nil, err
	}
	session := supervisor.PID
	if s, alive := all[session]; alive && s.Start != supervisor.PIDStart {
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

// bootID names the run of the kernel, process numbers mean nothing beyond it; empty where it is not told.
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
