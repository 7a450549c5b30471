package perf

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Event is an event that the kernel can count.
type Event struct {
	// Name is the name of perf(1).
	Name string
	// Type is the kernel's type of the counting unit; Config, Config1 and Config2 select the event.
	Type                     uint32
	Config, Config1, Config2 uint64
}

// hardwareNames returns the 58 events by which PipeTune recognises workloads.
func hardwareNames() []string {
	return strings.Fields(`
		cache-references cache-misses branches branch-misses branch-loads branch-load-misses bus-cycles cpu-cycles instructions
		L1-dcache-loads L1-dcache-load-misses L1-dcache-stores L1-icache-load-misses LLC-loads LLC-load-misses LLC-stores LLC-store-misses
		dTLB-loads dTLB-load-misses dTLB-stores dTLB-store-misses iTLB-loads iTLB-load-misses node-loads node-load-misses node-stores node-store-misses
		msr/tsc/ msr/aperf/ msr/mperf/ msr/pperf/ msr/smi/
		cpu/branch-instructions/ cpu/branch-misses/ cpu/bus-cycles/ cpu/cache-misses/ cpu/cache-references/ cpu/cpu-cycles/ cpu/cycles-t/ cpu/cycles-ct/
		cpu/instructions/ cpu/mem-loads/ cpu/mem-stores/ cpu/el-start/ cpu/el-commit/ cpu/el-abort/ cpu/el-capacity/ cpu/el-conflict/
		cpu/tx-start/ cpu/tx-commit/ cpu/tx-abort/ cpu/tx-capacity/ cpu/tx-conflict/
		cpu/topdown-total-slots/ cpu/topdown-slots-issued/ cpu/topdown-slots-retired/ cpu/topdown-fetch-bubbles/ cpu/topdown-recovery-bubbles/`)
}

// softwareEvents returns the events that the kernel counts itself: every machine has them.
func softwareEvents() []Event {
	var events []Event
	for _, e := range []struct {
		name   string
		config uint64
	}{
		{"task-clock", unix.PERF_COUNT_SW_TASK_CLOCK},
		{"page-faults", unix.PERF_COUNT_SW_PAGE_FAULTS},
		{"minor-faults", unix.PERF_COUNT_SW_PAGE_FAULTS_MIN},
		{"major-faults", unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ},
		{"context-switches", unix.PERF_COUNT_SW_CONTEXT_SWITCHES},
		{"cpu-migrations", unix.PERF_COUNT_SW_CPU_MIGRATIONS},
		{"alignment-faults", unix.PERF_COUNT_SW_ALIGNMENT_FAULTS},
		{"emulation-faults", unix.PERF_COUNT_SW_EMULATION_FAULTS},
	} {
		events = append(events, Event{Name: e.name, Type: unix.PERF_TYPE_SOFTWARE, Config: e.config})
	}
	return events
}

// resolve translates an event's name for the kernel. devices is /sys/bus/event_source/devices, where units describe
// their own events.
func resolve(name string, devices fs.FS) (Event, error) {
	if unit, event, found := strings.Cut(strings.TrimSuffix(name, "/"), "/"); found {
		return described(name, unit, event, devices)
	}
	generic := map[string]uint64{
		"cpu-cycles": unix.PERF_COUNT_HW_CPU_CYCLES, "instructions": unix.PERF_COUNT_HW_INSTRUCTIONS,
		"cache-references": unix.PERF_COUNT_HW_CACHE_REFERENCES, "cache-misses": unix.PERF_COUNT_HW_CACHE_MISSES,
		"branches": unix.PERF_COUNT_HW_BRANCH_INSTRUCTIONS, "branch-misses": unix.PERF_COUNT_HW_BRANCH_MISSES, "bus-cycles": unix.PERF_COUNT_HW_BUS_CYCLES,
	}
	if config, found := generic[name]; found {
		return Event{Name: name, Type: unix.PERF_TYPE_HARDWARE, Config: config}, nil
	}
	return cached(name)
}

// cached parses names such as L1-dcache-load-misses: a cache, and an operation on it.
func cached(name string) (Event, error) {
	caches := map[string]uint64{
		"L1-dcache": unix.PERF_COUNT_HW_CACHE_L1D, "L1-icache": unix.PERF_COUNT_HW_CACHE_L1I, "LLC": unix.PERF_COUNT_HW_CACHE_LL,
		"dTLB": unix.PERF_COUNT_HW_CACHE_DTLB, "iTLB": unix.PERF_COUNT_HW_CACHE_ITLB, "branch": unix.PERF_COUNT_HW_CACHE_BPU, "node": unix.PERF_COUNT_HW_CACHE_NODE,
	}
	for _, deed := range []struct {
		suffix            string
		operation, result uint64
	}{
		{"-load-misses", unix.PERF_COUNT_HW_CACHE_OP_READ, unix.PERF_COUNT_HW_CACHE_RESULT_MISS},
		{"-store-misses", unix.PERF_COUNT_HW_CACHE_OP_WRITE, unix.PERF_COUNT_HW_CACHE_RESULT_MISS},
		{"-loads", unix.PERF_COUNT_HW_CACHE_OP_READ, unix.PERF_COUNT_HW_CACHE_RESULT_ACCESS},
		{"-stores", unix.PERF_COUNT_HW_CACHE_OP_WRITE, unix.PERF_COUNT_HW_CACHE_RESULT_ACCESS},
	} {
		cache, found := strings.CutSuffix(name, deed.suffix)
		if id, known := caches[cache]; found && known {
			return Event{Name: name, Type: unix.PERF_TYPE_HW_CACHE, Config: id | deed.operation<<8 | deed.result<<16}, nil
		}
	}
	return Event{}, fmt.Errorf("event %q is unknown", name)
}

// described reads an event from its unit's description: events/<event> holds terms such as event=0x0e,umask=0x1, and
// format/<term> the bits of each.
func described(name, unit, event string, devices fs.FS) (Event, error) {
	kind, err := fs.ReadFile(devices, path.Join(unit, "type"))
	if err != nil {
		return Event{}, fmt.Errorf("find unit of %s: %w", name, err)
	}
	number, err := strconv.ParseUint(strings.TrimSpace(string(kind)), 10, 32)
	if err != nil {
		return Event{}, fmt.Errorf("read type of %s: %w", unit, err)
	}
	terms, err := fs.ReadFile(devices, path.Join(unit, "events", event))
	if err != nil {
		return Event{}, fmt.Errorf("find event %s: %w", name, err)
	}
	e := Event{Name: name, Type: uint32(number)}
	for term := range strings.SplitSeq(strings.TrimSpace(string(terms)), ",") {
		key, text, given := strings.Cut(strings.TrimSpace(term), "=")
		value := uint64(1)
		if given {
			if value, err = strconv.ParseUint(text, 0, 64); err != nil {
				return Event{}, fmt.Errorf("read term %s of %s: %w", key, name, err)
			}
		}
		format, err := fs.ReadFile(devices, path.Join(unit, "format", key))
		if err != nil {
			return Event{}, fmt.Errorf("find format of term %s of %s: %w", key, name, err)
		}
		if err := e.place(value, strings.TrimSpace(string(format))); err != nil {
			return Event{}, fmt.Errorf("place term %s of %s: %w", key, name, err)
		}
	}
	return e, nil
}

// place puts a value into the bits that a format names, lowest first: config:0-7,32-35.
func (e *Event) place(value uint64, format string) error {
	field, ranges, _ := strings.Cut(format, ":")
	configs := map[string]*uint64{"config": &e.Config, "config1": &e.Config1, "config2": &e.Config2}
	config, known := configs[field]
	if !known {
		return fmt.Errorf("format %q", format)
	}
	for bits := range strings.SplitSeq(ranges, ",") {
		low, high, isRange := strings.Cut(bits, "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.ParseUint(low, 10, 6)
		to, errTo := strconv.ParseUint(high, 10, 6)
		if errors.Join(errFrom, errTo) != nil || to < from {
			return fmt.Errorf("format %q", format)
		}
		width := to - from + 1
		mask := ^uint64(0) >> (64 - width)
		*config |= value & mask << from
		value = value >> (width - 1) >> 1 // a shift by 64 would do nothing
	}
	return nil
}
