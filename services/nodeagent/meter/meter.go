package meter

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// The methods of this package as they are on the wire; sources name their own.
const (
	methodModelled = train.MethodModelled
	methodCounter  = "nvml_counter"
	methodPower    = "nvml_power"
	// methodNVML stands for both if only the source matters.
	methodNVML = "nvml"
)

// Model is the assumed power of a machine that cannot be measured.
type Model struct {
	Idle unit.Power
	Core unit.Power
}

// energy returns the energy of busy core-seconds in an interval, and the idle part of it.
func (m Model) energy(busyCoreSeconds float64, d time.Duration) (total, idle unit.Energy) {
	idle = m.Idle.Over(d)
	return idle + unit.Energy(float64(m.Core)*busyCoreSeconds), idle
}

// Reading is one interval: the energy and its users.
type Reading struct {
	Meters []event.Meter
	Users  []event.Use
	// Counters are performance counters over the time CountersOver up to now, at intervals while attempts run.
	Counters     map[string]float64
	CountersOver time.Duration
}

// Meter holds the last readings of all sources. One goroutine uses it, except for Statuses and Devices.
type Meter struct {
	config    Config
	processes proc.Reader

	cpuTimes cpuTimes
	// booted is when the machine was booted, by the wall clock.
	booted    time.Time
	busy      proc.Ticks
	marks     markReader
	gpuMeters map[int]*gpuMeter
	lastError map[string]string
	// counting is set if the counters were read since attempts run, counted is how long ago.
	counting bool
	counted  time.Duration

	mu sync.Mutex
	// statuses and seen are for other goroutines: the state of the meters, and the GPUs.
	statuses []Status
	seen     []gpu.Device
}

// Config says what can be read.
type Config struct {
	Proc proc.Root
	// Cgroups is where control groups are mounted; if empty, only processes are read.
	Cgroups string
	// Sources are ordered, best first.
	Sources []Source
	GPUs    gpu.Reader // nil if there are none
	Events  Events     // nil if none are counted
	Model   Model
	// Elsewhere returns the live attempts that have no place on this node: their processes may work here all the same.
	Elsewhere func() []train.Attempt
	Log       *slog.Logger
}

// Events are performance counters of the whole node. Read returns how often each happened since the last call.
type Events interface {
	Read() (map[string]float64, error)
}

// New makes a meter and takes first readings.
func New(c Config) (*Meter, error) {
	m := &Meter{config: c, processes: proc.Reader{Root: c.Proc}, gpuMeters: map[int]*gpuMeter{}, lastError: map[string]string{}}
	uptime, err := c.Proc.Uptime()
	if err != nil {
		return nil, err
	}
	bootID, err := c.Proc.BootID()
	if err != nil {
		return nil, err
	}
	m.cpuTimes = cpuTimes{
		since: uint64(uptime.Seconds() * proc.TicksPerSecond), bootID: bootID, total: map[runKey]proc.Ticks{},
		groups: groups{proc: c.Proc, mount: c.Cgroups, known: map[runKey]attemptGroup{}},
	}
	return m, m.Begin(nil)
}

// Statuses returns the state of each meter.
func (m *Meter) Statuses() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.statuses)
}

// Devices lists the GPUs at the last reading.
func (m *Meter) Devices() []gpu.Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

func (m *Meter) setStatuses(devices []gpu.Device, modelled bool) {
	var statuses []Status
	if m.lastError[methodNVML] != "" || slices.ContainsFunc(devices, func(d gpu.Device) bool { return !d.Simulated }) {
		statuses = append(statuses, Status{methodNVML, m.lastError[methodNVML]})
	}
	for _, s := range m.config.Sources {
		statuses = append(statuses, Status{s.Method(), m.lastError[s.Method()]})
	}
	if modelled {
		statuses = append(statuses, Status{Method: methodModelled})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.statuses, m.seen = statuses, devices
}

// Begin takes the readings that the first interval is compared with.
func (m *Meter) Begin(attempts []train.Attempt) error {
	_, err := m.Read(0, attempts)
	return err
}

// Read closes an interval of length d. What cannot be read is left out and logged once. An error means that not even
// the processors could be read; a reading of length 0 has to follow, because the next result covers more than its
// interval.
func (m *Meter) Read(d time.Duration, attempts []train.Attempt) (Reading, error) {
	elsewhere := m.elsewhere()
	cpu, cpuErr := m.config.Proc.CPU()
	all, allErr := m.present(len(attempts)+len(elsewhere) > 0)
	uptime, err := m.config.Proc.Uptime()
	if err := errors.Join(cpuErr, allErr, err); err != nil {
		m.counting = false // its time is not in counted
		return Reading{}, err
	}
	m.booted = time.Now().Add(-uptime)
	var r Reading
	busySeconds := min((cpu.Busy - m.busy).Seconds(), float64(cpu.Cores)*d.Seconds())
	busySeconds = max(busySeconds, 0)
	m.busy = cpu.Busy
	marks := m.marks.read(m.config.Proc, all)
	attempts = append(slices.Clone(attempts), marked(elsewhere, marks)...)
	for who, ticks := range m.cpuTimes.used(all, attempts, marks) {
		r.Users = append(r.Users, event.Use{
			Job: who.job, Attempt: who.attempt, Component: event.ComponentCPU, Work: ticks.Seconds(), ReservedRatio: reservedSlots(who, attempts, cpu.Cores),
		})
	}
	r.Meters = m.machine(d, busySeconds, float64(cpu.Cores)*d.Seconds())
	modelled := r.Meters[0].Method == methodModelled
	devices := m.gpus()
	meters, users := m.accelerators(d, devices, attempts, m.owners(all))
	m.setStatuses(devices, modelled)
	r.Meters, r.Users = append(r.Meters, meters...), append(r.Users, users...)
	r.Counters, r.CountersOver = m.count(d, len(attempts) > 0)
	slices.SortFunc(r.Users, func(a, b event.Use) int {
		return strings.Compare(string(a.Job)+" "+a.Component+string(a.Device), string(b.Job)+" "+b.Component+string(b.Device))
	})
	return r, nil
}

// present returns the processes of the machine. It reads none while no attempt can own any: with hundreds of processes
// that would take a third of the processor time of an idle server. Two more readings follow the last attempt, since a
// GPU may still report what its processes did.
func (m *Meter) present(attempts bool) (map[int]proc.Stat, error) {
	if !attempts && len(m.cpuTimes.owner)+len(m.cpuTimes.former) == 0 {
		m.processes = proc.Reader{Root: m.config.Proc} // what it remembers of kernel threads would get old
		return nil, nil
	}
	return m.processes.Read()
}

// elsewhere returns the live attempts that have no place on this node.
func (m *Meter) elsewhere() []train.Attempt {
	if m.config.Elsewhere == nil {
		return nil
	}
	return m.config.Elsewhere()
}

// marked returns the attempts of which a process here carries the mark.
func marked(attempts []train.Attempt, marks map[int]string) []train.Attempt {
	if len(attempts) == 0 || len(marks) == 0 {
		return nil
	}
	here := map[string]bool{}
	for _, mark := range marks {
		here[train.Hash(mark)] = true
	}
	return slices.DeleteFunc(attempts, func(a train.Attempt) bool { return !here[a.Marks()] })
}

// reservedSlots is the share of the processors in an attempt's slots.
func reservedSlots(who runKey, attempts []train.Attempt, cores int) float64 {
	slots := 0
	for _, a := range attempts {
		if runOf(a) != who {
			continue
		}
		for _, d := range a.Devices {
			if strings.HasPrefix(string(d), string(train.KindCPU)+":") {
				slots++
			}
		}
	}
	return min(float64(slots)/float64(cores), 1)
}

// machine returns the energy of processors, memory and the node as sources report it, and that of the processors by
// the model if none does. The processors come first.
func (m *Meter) machine(d time.Duration, busySeconds, capacity float64) []event.Meter {
	reported := m.readSources(d)
	var meters []event.Meter
	for _, component := range []string{event.ComponentCPU, event.ComponentDRAM, event.ComponentNode} {
		reading, found := reported[component]
		switch {
		case component == event.ComponentCPU && !found:
			total, idle := m.config.Model.energy(busySeconds, d)
			reading = event.Meter{Component: component, Method: methodModelled, Energy: total, Idle: idle, Capacity: capacity, Busy: busySeconds}
		case !found:
			continue
		case component != event.ComponentNode:
			reading.Capacity, reading.Busy = capacity, busySeconds
			// Without a reading of the idle machine, the share of busy processors counts as active, as in Kepler.
			if reading.Energy > 0 && capacity > 0 {
				reading.Idle = unit.Energy(float64(reading.Energy) * (1 - busySeconds/capacity))
			}
		}
		meters = append(meters, reading)
	}
	return meters
}

// countInterval is how often performance counters are read: each reading is a system call for each event and
// processor, and their mean over a second is the same.
const countInterval = 10 * time.Second

// count reads the performance counters while attempts run, and returns the time over which they counted.
func (m *Meter) count(d time.Duration, busy bool) (map[string]float64, time.Duration) {
	if m.config.Events == nil || !busy {
		m.counting = false
		return nil, 0
	}
	if m.counted += d; m.counting && m.counted < countInterval {
		return nil, 0
	}
	counters, err := m.config.Events.Read()
	m.logChange("perf", err)
	over, first := m.counted, !m.counting
	m.counting, m.counted = true, 0
	if first || err != nil { // what happened before any attempt ran
		return nil, 0
	}
	return counters, over
}

// owners returns the owners of processes.
func (m *Meter) owners(all map[int]proc.Stat) owners {
	return owners{now: m.cpuTimes.owner, before: m.cpuTimes.former, began: func(pid int) (time.Time, bool) {
		s, found := all[pid]
		return m.booted.Add(time.Duration(s.Start) * time.Second / proc.TicksPerSecond), found
	}}
}

// gpus lists the GPUs.
func (m *Meter) gpus() []gpu.Device {
	if m.config.GPUs == nil {
		return nil
	}
	devices, err := m.config.GPUs.Devices()
	m.logChange(methodNVML, err)
	return devices
}

// accelerators returns the energy and the users of each GPU.
func (m *Meter) accelerators(d time.Duration, devices []gpu.Device, attempts []train.Attempt, who owners) ([]event.Meter, []event.Use) {
	var meters []event.Meter
	var users []event.Use
	boards := map[train.DeviceID]bool{}
	for _, device := range devices {
		id := device.ID().Board()
		if boards[id] { // another instance of a GPU that was read
			continue
		}
		boards[id] = true
		name := string(id)
		sample, err := m.config.GPUs.Sample(device.Index)
		m.logChange(name, err)
		if err != nil {
			delete(m.gpuMeters, device.Index)
			// The attempts that hold the device lack a reading.
			on, _ := useOf(id, sample, nil, who, attempts)
			users = append(users, on.uses(id, d)...)
			continue
		}
		b := m.gpuMeters[device.Index]
		if b == nil || b.uuid != device.UUID {
			b = &gpuMeter{uuid: device.UUID, simulated: device.Simulated}
			m.gpuMeters[device.Index] = b
		}
		var on deviceUse
		on, b.occupants = useOf(id, sample, b.occupants, who, attempts)
		if measured, ok := b.read(id, sample, d, on); ok {
			meters = append(meters, measured)
			users = append(users, on.uses(id, d)...)
		}
	}
	return meters, users
}

// logChange logs a fault when it changes, not every interval.
func (m *Meter) logChange(source string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if m.lastError[source] == text {
		return
	}
	m.lastError[source] = text
	if err != nil {
		m.config.Log.Warn("meter cannot be read", "source", source, "error", err)
		return
	}
	m.config.Log.Info("meter can be read again", "source", source)
}
