package attempt

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/proc"
)

// Kernel reads the processes of this machine.
const Kernel = proc.Root("/proc")

// Descendants returns the descendants of a process, without the process itself.
func Descendants(of int) ([]int, error) {
	all, err := Kernel.Living()
	if err != nil {
		return nil, err
	}
	tree := proc.NewForest(all).Tree(of, all[of].Start)
	delete(tree, of)
	return slices.Collect(maps.Keys(tree)), nil
}

// Leftovers finds what is left of an attempt whose supervisor is gone: processes of its session, which the supervisor
// leads, processes that carry its marker, and the descendants of both. If the session number was given out again, the
// process of that number is alive with another start time.
func Leftovers(sup Supervisor, marker string) ([]int, error) {
	all, err := Kernel.Living()
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
		if session > 0 && s.Session == session || marked && Kernel.Variable(pid, name) == value {
			maps.Copy(found, forest.Tree(pid, s.Start))
		}
	}
	return slices.Collect(maps.Keys(found)), nil
}

// BootID identifies the run of the kernel; process numbers mean nothing beyond it. It is empty if the kernel does not
// report it.
func BootID() string {
	id, _ := Kernel.BootID()
	return id
}
