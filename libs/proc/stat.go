// Package proc reads the kernel's data on processes and processors. It measures nothing by itself: callers compare two
// readings.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TicksPerSecond is the unit of the kernel's times for user space: USER_HZ, which is 100 on every Linux architecture
// that Go runs on.
const TicksPerSecond = 100

// Ticks is an amount of processor time.
type Ticks int64

// Seconds returns t in seconds.
func (t Ticks) Seconds() float64 { return float64(t) / TicksPerSecond }

// Stat holds the used fields of /proc/<pid>/stat.
type Stat struct {
	PID int
	// Name is that of the program, shortened by the kernel; it changes when the process executes another program.
	Name   string
	Parent int
	// Session is the process that began its session.
	Session int
	State   byte
	// Threads are those that have not ended, the first one included in any case.
	Threads int
	// Kernel is set for a thread of the kernel.
	Kernel bool
	// Own is the processor time of the process itself, all its threads included; Reaped that of its children that have
	// ended and were waited for.
	Own    Ticks
	Reaped Ticks
	// Start is the start time in ticks since the boot: together with the PID it identifies a process for good.
	Start uint64
}

// Over reports whether the process has ended, whether or not it was waited for. If its first thread alone has ended, it
// goes on, and where another thread executes a program, it does so under the same number.
func (s Stat) Over() bool { return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1 }

// The fields of a line as numbered in proc(5); the first one after the name is number 3.
const (
	state, parent, session, flags, threads = 3, 4, 6, 9, 20
	utime, stime, cutime, cstime, start    = 14, 15, 16, 17, 22
)

// numeric reports whether ParseStat needs a field as a number.
func numeric(field int) bool {
	switch field {
	case parent, session, flags, utime, stime, cutime, cstime, threads, start:
		return true
	}
	return false
}

// ParseStat reads the line; the command name in it may hold spaces and parentheses.
func ParseStat(line []byte) (Stat, error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 1 || end < open {
		return Stat{}, fmt.Errorf("parse stat %.80q: no command name", line)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(line[:open])))
	if err != nil {
		return Stat{}, fmt.Errorf("parse stat %.80q: %w", line, err)
	}
	var numbers [start + 1]int64
	s := Stat{PID: pid, Name: string(line[open+1 : end])}
	field := state
	for text := range strings.FieldsSeq(string(line[end+1:])) {
		switch {
		case field == state && len(text) == 1:
			s.State = text[0]
		case numeric(field):
			if numbers[field], err = strconv.ParseInt(text, 10, 64); err != nil {
				return Stat{}, fmt.Errorf("parse stat %.80q: %w", line, err)
			}
		}
		if field++; field > start {
			break
		}
	}
	if field <= start || s.State == 0 {
		return Stat{}, fmt.Errorf("parse stat %.80q: too short", line)
	}
	const kernelThread = 0x00200000 // PF_KTHREAD
	s.Parent, s.Session, s.Start, s.Kernel = int(numbers[parent]), int(numbers[session]), uint64(numbers[start]), numbers[flags]&kernelThread != 0
	s.Threads = int(numbers[threads])
	s.Own, s.Reaped = Ticks(numbers[utime]+numbers[stime]), Ticks(numbers[cutime]+numbers[cstime])
	return s, nil
}

// CPU holds the times of all processors of the machine since the boot.
type CPU struct {
	Busy  Ticks
	Cores int
}

// ParseCPU parses /proc/stat. Waiting for a disk is idle; time stolen by a hypervisor is neither idle nor busy.
func ParseCPU(text []byte) (CPU, error) {
	var c CPU
	found := false
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "cpu") {
			continue
		}
		if fields[0] != "cpu" {
			c.Cores++
			continue
		}
		// user nice system idle iowait irq softirq steal guest guest_nice; the guests' time is part of user and nice.
		const least = 8
		if len(fields) < least {
			return CPU{}, fmt.Errorf("parse /proc/stat: %.80q is too short", line)
		}
		for _, i := range []int{1, 2, 3, 6, 7} {
			n, err := strconv.ParseInt(fields[i], 10, 64)
			if err != nil {
				return CPU{}, fmt.Errorf("parse /proc/stat: %w", err)
			}
			c.Busy += Ticks(n)
		}
		found = true
	}
	if !found || c.Cores == 0 {
		return CPU{}, errors.New("parse /proc/stat: no processors in it")
	}
	return c, nil
}

// ParseUptime parses /proc/uptime: the time since the boot, suspension included.
func ParseUptime(text []byte) (time.Duration, error) {
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("parse /proc/uptime: %w", err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
