package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Root is where the kernel's file system of processes is: /proc, but in tests.
type Root string

// Processes reads all processes, those that ended and were not waited for yet included: their times count until then.
func (r Root) Processes() (map[int]Stat, error) {
	entries, err := os.ReadDir(string(r))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := map[int]Stat{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		line, err := r.stat(e.Name())
		if err != nil {
			continue // it ended while we were reading
		}
		s, err := ParseStat(line)
		if err != nil {
			return nil, err
		}
		all[s.PID] = s
	}
	return all, nil
}

// Process reads one process.
func (r Root) Process(pid int) (Stat, error) {
	line, err := r.stat(strconv.Itoa(pid))
	if err != nil {
		return Stat{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return ParseStat(line)
}

func (r Root) stat(pid string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(r), pid, "stat"))
}

// CPU reads what the processors did.
func (r Root) CPU() (CPU, error) {
	text, err := os.ReadFile(filepath.Join(string(r), "stat"))
	if err != nil {
		return CPU{}, fmt.Errorf("read processor times: %w", err)
	}
	return ParseCPU(text)
}

// Uptime reads the time since the boot.
func (r Root) Uptime() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(string(r), "uptime"))
	if err != nil {
		return 0, fmt.Errorf("read uptime: %w", err)
	}
	return ParseUptime(text)
}

// BootID names the run of the kernel.
func (r Root) BootID() (string, error) {
	text, err := os.ReadFile(filepath.Join(string(r), "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Variable reads a variable of a process's environment as it was at its start; "" where it has none or may not be read.
func (r Root) Variable(pid int, name string) string {
	environ, err := os.ReadFile(filepath.Join(string(r), strconv.Itoa(pid), "environ"))
	if err != nil {
		return ""
	}
	for pair := range strings.SplitSeq(string(environ), "\x00") {
		if value, found := strings.CutPrefix(pair, name+"="); found {
			return value
		}
	}
	return ""
}

// Tree finds a process and all that descends from it; nil when the process is gone or its number was given to another one.
func Tree(all map[int]Stat, pid int, start uint64) map[int]Stat {
	root, found := all[pid]
	if !found || root.Start != start {
		return nil
	}
	children := map[int][]int{}
	for _, s := range all {
		children[s.Parent] = append(children[s.Parent], s.PID)
	}
	tree := map[int]Stat{pid: root}
	for open := []int{pid}; len(open) > 0; open = open[1:] {
		for _, child := range children[open[0]] {
			if _, seen := tree[child]; !seen {
				tree[child] = all[child]
				open = append(open, child)
			}
		}
	}
	return tree
}
