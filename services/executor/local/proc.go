package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stat is what matters of /proc/<pid>/stat.
type stat struct {
	pid     int
	parent  int
	session int
	state   byte
	start   uint64
}

// parseStat reads the line; the command name in it may hold spaces and parentheses.
func parseStat(line []byte) (stat, error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 1 || end < open {
		return stat{}, fmt.Errorf("parse stat %.80q: no command name", line)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(line[:open])))
	fields := strings.Fields(string(line[end+1:]))
	const start = 19 // field 22 of the line, counted from the state (field 3)
	if err != nil || len(fields) <= start {
		return stat{}, fmt.Errorf("parse stat %.80q: too short", line)
	}
	s := stat{pid: pid, state: fields[0][0]}
	var errs [3]error
	s.parent, errs[0] = strconv.Atoi(fields[1])
	s.session, errs[1] = strconv.Atoi(fields[3])
	s.start, errs[2] = strconv.ParseUint(fields[start], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return stat{}, fmt.Errorf("parse stat %.80q: %w", line, err)
	}
	return s, nil
}

// processes lists all processes but zombies.
func processes() ([]stat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []stat
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if s, err := processStat(pid); err == nil && s.state != 'Z' && s.state != 'X' {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

func processStat(pid int) (stat, error) {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, fmt.Errorf("read stat of %d: %w", pid, err)
	}
	return parseStat(line)
}

// hasVariable says whether a process was started with NAME=value in its environment.
func hasVariable(pid int, pair string) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	return err == nil && (bytes.HasPrefix(data, []byte(pair+"\x00")) || bytes.Contains(data, []byte("\x00"+pair+"\x00")))
}

// descendants of a process, not itself.
func descendants(of int) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	return below(all, map[int]bool{of: true}), nil
}

func below(all []stat, roots map[int]bool) []int {
	within := map[int]bool{}
	for pid := range roots {
		within[pid] = true
	}
	var found []int
	for grown := true; grown; {
		grown = false
		for _, s := range all {
			if within[s.parent] && !within[s.pid] {
				within[s.pid], grown = true, true
				found = append(found, s.pid)
			}
		}
	}
	return found
}

// leftovers finds what is left of an attempt whose supervisor is gone: processes of its session, which begins with the supervisor, processes that carry
// its marker, and the descendants of both. A session number that was given out anew belongs to a process that is alive under it.
func leftovers(supervisor shimFile, marker string) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	session := supervisor.PID
	for _, s := range all {
		if s.pid == session && s.start != supervisor.PIDStart {
			session = 0
		}
	}
	roots := map[int]bool{}
	for _, s := range all {
		if s.pid != os.Getpid() && (session > 0 && s.session == session || marker != "" && hasVariable(s.pid, marker)) {
			roots[s.pid] = true
		}
	}
	found := below(all, roots)
	for pid := range roots {
		found = append(found, pid)
	}
	return found, nil
}

// bootID names the run of the kernel: process numbers mean nothing beyond it.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func signalName(s unix.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
