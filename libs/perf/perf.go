// Package perf counts hardware and software events of the whole node with perf_event_open, as `perf stat -a` does: of
// the 58 events by which PipeTune recognises workloads those the machine has, else the events that the kernel counts
// itself. It does not interpret the numbers.
package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DefaultDevices is the folder where the kernel's units describe their events, DefaultOnline the list of active
// processors.
const (
	DefaultDevices = "/sys/bus/event_source/devices"
	DefaultOnline  = "/sys/devices/system/cpu/online"
)

// Counters are open counters, one per processor and event. One goroutine uses them.
type Counters struct {
	counters []*counter
	// hardware is the number of the 58 events that the processor itself counts.
	hardware int
	// missing holds the cause for each of the 58 events that is not counted.
	missing map[string]error
}

// counter is one event on one processor.
type counter struct {
	name string
	from io.ReadCloser
	last reading
}

// reading is the kernel's data: a count, and for how many nanoseconds the counter was enabled and running. Counters run
// in turns if the processor has too few registers.
type reading struct {
	value, enabled, running uint64
}

// opener opens an event on a processor.
type opener func(e Event, cpu int) (io.ReadCloser, error)

// Open counts all available events. The error says why none can be counted.
func Open() (*Counters, error) {
	text, err := os.ReadFile(DefaultOnline)
	if err != nil {
		return nil, fmt.Errorf("list processors: %w", err)
	}
	cpus, err := parseOnline(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	return openAll(os.DirFS(DefaultDevices), cpus, openEvent)
}

func openAll(devices fs.FS, cpus []int, open opener) (*Counters, error) {
	c := &Counters{missing: map[string]error{}}
	for _, name := range hardwareNames() {
		e, err := resolve(name, devices)
		if err == nil {
			err = c.add(e, cpus, open)
		}
		if err != nil {
			c.missing[name] = err
			continue
		}
		if !strings.HasPrefix(name, "msr/") { // virtual machines have only a time-stamp counter
			c.hardware++
		}
	}
	if c.hardware > 0 {
		return c, nil
	}
	var troubles []error
	for _, e := range softwareEvents() {
		if err := c.add(e, cpus, open); err != nil {
			troubles = append(troubles, err)
		}
	}
	if len(c.counters) == 0 {
		return nil, errors.Join(troubles...)
	}
	return c, nil
}

// add opens an event on all processors or on none.
func (c *Counters) add(e Event, cpus []int, open opener) error {
	var opened []*counter
	for _, cpu := range cpus {
		from, err := open(e, cpu)
		if err == nil {
			opened = append(opened, &counter{name: e.Name, from: from})
			continue
		}
		for _, o := range opened {
			_ = o.from.Close()
		}
		return fmt.Errorf("count %s on processor %d: %w", e.Name, cpu, err)
	}
	c.counters = append(c.counters, opened...)
	return nil
}

// Hardware returns the number of events counted by the processor's own counters.
func (c *Counters) Hardware() int { return c.hardware }

// Names lists the counted events.
func (c *Counters) Names() []string {
	var names []string
	for _, o := range c.counters {
		if len(names) == 0 || names[len(names)-1] != o.name {
			names = append(names, o.name)
		}
	}
	return names
}

// Missing returns the cause for each event that is not counted.
func (c *Counters) Missing() map[string]error { return c.missing }

// Read returns how often each event happened since the last call, on all processors. It scales the count of a counter
// that ran in turns to the whole time, and leaves out an event whose counter did not run on any processor.
func (c *Counters) Read() (map[string]float64, error) {
	counts := map[string]float64{}
	for _, o := range c.counters {
		now, err := readCounter(o.from)
		if err != nil {
			return nil, fmt.Errorf("read counter of %s: %w", o.name, err)
		}
		running := now.running - o.last.running
		if running > 0 {
			counts[o.name] += float64(now.value-o.last.value) * float64(now.enabled-o.last.enabled) / float64(running)
		}
		o.last = now
	}
	return counts, nil
}

// Close ends the counting.
func (c *Counters) Close() {
	for _, o := range c.counters {
		_ = o.from.Close()
	}
}

func readCounter(from io.Reader) (reading, error) {
	var raw [24]byte
	if _, err := io.ReadFull(from, raw[:]); err != nil {
		return reading{}, err
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(raw[8*i:]) }
	return reading{word(0), word(1), word(2)}, nil
}

// parseOnline parses a list of processors: 0-3,8.
func parseOnline(text string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.Atoi(low)
		to, errTo := strconv.Atoi(high)
		if err := errors.Join(errFrom, errTo); err != nil {
			return nil, fmt.Errorf("parse list of processors %q: %w", text, err)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// descriptor is an open counter of the kernel.
type descriptor int

// Read reads its present state.
func (d descriptor) Read(p []byte) (int, error) { return unix.Read(int(d), p) }

// Close closes it.
func (d descriptor) Close() error { return unix.Close(int(d)) }

func openEvent(e Event, cpu int) (io.ReadCloser, error) {
	const allProcesses, noGroup = -1, -1
	attr := unix.PerfEventAttr{
		Type: e.Type, Config: e.Config, Ext1: e.Config1, Ext2: e.Config2, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	fd, err := unix.PerfEventOpen(&attr, allProcesses, cpu, noGroup, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open counter: %w", err)
	}
	return descriptor(fd), nil
}
