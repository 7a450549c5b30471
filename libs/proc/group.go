package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Group is a control group that accounts for processor time. Unlike the sum over processes, its time stays when one of
// them ends.
type Group struct {
	// usage is the file with the time, members the file that lists the processes.
	usage, members string
}

// Group finds the control group of a process below the folder where groups are mounted, of either version. The root
// group is the whole machine's and does not count.
func (r Root) Group(pid int, mount string) (Group, bool) {
	text, err := os.ReadFile(filepath.Join(string(r), strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return Group{}, false
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || filepath.Clean(parts[2]) == "/" || strings.Contains(parts[2], "..") {
			continue
		}
		folder, usage := mount, "cpu.stat"
		switch {
		case slices.Contains(strings.Split(parts[1], ","), "cpuacct"):
			folder, usage = filepath.Join(mount, "cpuacct"), "cpuacct.usage"
		case parts[1] != "":
			continue
		}
		g := Group{usage: filepath.Join(folder, parts[2], usage), members: filepath.Join(folder, parts[2], "cgroup.procs")}
		if _, err := g.Used(); err == nil {
			return g, true
		}
	}
	return Group{}, false
}

// Used returns the processor time of all processes that ever ran in the group.
func (g Group) Used() (Ticks, error) {
	text, err := os.ReadFile(g.usage)
	if err != nil {
		return 0, fmt.Errorf("read control group: %w", err)
	}
	const perTick = 1_000_000 / TicksPerSecond
	for line := range strings.Lines(string(text)) {
		switch fields := strings.Fields(line); {
		case len(fields) == 2 && fields[0] == "usage_usec":
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return Ticks(n / perTick), err
		case len(fields) == 1: // the first version reports only this, in nanoseconds
			n, err := strconv.ParseInt(fields[0], 10, 64)
			return Ticks(n / (1000 * perTick)), err
		}
	}
	return 0, fmt.Errorf("read control group: no time in %s", g.usage)
}

// Members returns the processes of the group.
func (g Group) Members() ([]int, error) {
	text, err := os.ReadFile(g.members)
	if err != nil {
		return nil, fmt.Errorf("list control group: %w", err)
	}
	var pids []int
	var errs []error
	for word := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(word)
		pids, errs = append(pids, pid), append(errs, err)
	}
	return pids, errors.Join(errs...)
}
