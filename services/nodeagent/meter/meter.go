package meter

import (
	"errors"
	"fmt"
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
	"github.com/switchyard-dl/switchyard/services/nodeagent/rapl"
)

// The components and methods as they are on the wire.
const (
	componentCPU  = "cpu"
	componentDRAM = "dram"
	componentGPU  = "gpu"

	methodModelled = "modelled"
	methodRAPL     = "rapl"
	methodCounter  = "nvml_counter"
	methodPower    = "nvml_power"
)

// Model is the assumed power of a machine that cannot be measured.
type Model struct {
	Idle unit.Power
	Core unit.Power
}

// energy of so many busy core-seconds in an interval, and the idle part of it.
func (m Model) energy(busyCoreSeconds float64, d time.Duration) (total, idle unit.Energy) {
	idle = m.Idle.Over(d)
	return idle + unit.Energy(float64(m.Core)*busyCoreSeconds), idle
}

// Reading is one interval: what was spent and who used what.
type Reading struct {
	Meters []event.Meter
	Users  []event.Use
}

// Meter holds the last readings of all sources. It is used by one goroutine, but for Names and Devices.
type Meter struct {
	proc  proc.Root
	rapl  *rapl.Counters // nil where there are none
	gpus  gpu.Reader     // nil where there are none
	model Model
	log   *slog.Logger

	workers workers
	busy    proc.Ticks
	marks   markReader
	boards  map[int]*board
	said    map[string]string

	mu sync.Mutex
	// names and seen are what other goroutines may know: the methods in use and the GPUs.
	names []string
	seen  []gpu.Device
}

// Config says what can be read.
type Config struct {
	Proc  proc.Root
	RAPL  *rapl.Counters
	GPUs  gpu.Reader
	Model Model
	Log   *slog.Logger
}

// New makes a meter and takes first readings.
func New(c Config) (*Meter, error) {
	m := &Meter{proc: c.Proc, rapl: c.RAPL, gpus: c.GPUs, model: c.Model, log: c.Log, boards: map[int]*board{}, said: map[string]string{}}
	uptime, err := c.Proc.Uptime()
	if err != nil {
		return nil, err
	}
	bootID, err := c.Proc.BootID()
	if err != nil {
		return nil, err
	}
	m.workers = workers{since: uint64(uptime.Seconds() * proc.TicksPerSecond), bootID: bootID, total: map[run]proc.Ticks{}}
	return m, m.Begin(nil)
}

// Names lists the methods in use, for people.
func (m *Meter) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.names)
}

// Devices lists the GPUs that there were at the last reading.
func (m *Meter) Devices() []gpu.Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

func (m *Meter) tell(devices []gpu.Device) {
	names := []string{}
	if slices.ContainsFunc(devices, func(d gpu.Device) bool { return !d.Simulated }) {
		names = append(names, "nvml")
	}
	if m.rapl.Usable() {
		names = append(names, methodRAPL)
	} else {
		names = append(names, methodModelled)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names, m.seen = names, devices
}

// Begin takes the readings that the first interval is compared with.
func (m *Meter) Begin(attempts []train.Attempt) error {
	_, err := m.Read(0, attempts)
	return err
}

// Read closes an interval of length d. What cannot be read is left out and said once; an error means that not even the processors could be read.
func (m *Meter) Read(d time.Duration, attempts []train.Attempt) (Reading, error) {
	cpu, cpuErr := m.proc.CPU()
	all, allErr := m.proc.Processes()
	if err := errors.Join(cpuErr, allErr); err != nil {
		return Reading{}, err
	}
	var r Reading
	busySeconds := min((cpu.Busy - m.busy).Seconds(), float64(cpu.Cores)*d.Seconds())
	busySeconds = max(busySeconds, 0)
	m.busy = cpu.Busy
	for who, ticks := range m.workers.used(all, attempts, m.marks.read(m.proc, all)) {
		r.Users = append(r.Users, event.Use{Job: who.job, Attempt: who.attempt, Component: componentCPU, Work: ticks.Seconds()})
	}
	r.Meters = m.processors(d, busySeconds, float64(cpu.Cores)*d.Seconds())
	devices := m.present()
	meters, users := m.accelerators(d, devices, attempts)
	m.tell(devices)
	r.Meters, r.Users = append(r.Meters, meters...), append(r.Users, users...)
	slices.SortFunc(r.Users, func(a, b event.Use) int {
		return strings.Compare(string(a.Job)+" "+a.Component+string(a.Device), string(b.Job)+" "+b.Component+string(b.Device))
	})
	return r, nil
}

// processors gives the energy of the CPU and the memory by RAPL, else by the model.
func (m *Meter) processors(d time.Duration, busySeconds, capacity float64) []event.Meter {
	measured, err := m.rapl.Read(d)
	m.say("rapl", err)
	if err != nil || measured == nil {
		total, idle := m.model.energy(busySeconds, d)
		return []event.Meter{{
			Component: componentCPU, Method: methodModelled, Energy: total, Idle: idle, Capacity: capacity, Busy: busySeconds,
		}}
	}
	var meters []event.Meter
	for _, c := range measured {
		// Without a reading of the idle machine the part of a busy processor is active, as Kepler has it.
		idle := unit.Energy(0)
		if c.Energy > 0 && capacity > 0 {
			idle = unit.Energy(float64(c.Energy) * (1 - busySeconds/capacity))
		}
		meters = append(meters, event.Meter{
			Component: c.Component, Method: methodRAPL, Energy: c.Energy, Idle: idle, Capacity: capacity, Busy: busySeconds,
		})
	}
	return meters
}

// present lists the GPUs.
func (m *Meter) present() []gpu.Device {
	if m.gpus == nil {
		return nil
	}
	devices, err := m.gpus.Devices()
	m.say("nvml", err)
	return devices
}

// accelerators gives the energy and the users of each GPU.
func (m *Meter) accelerators(d time.Duration, devices []gpu.Device, attempts []train.Attempt) ([]event.Meter, []event.Use) {
	var meters []event.Meter
	var users []event.Use
	for _, device := range devices {
		name := fmt.Sprintf("gpu:%d", device.Index)
		sample, err := m.gpus.Sample(device.Index)
		m.say(name, err)
		if err != nil {
			delete(m.boards, device.Index)
			continue
		}
		b := m.boards[device.Index]
		if b == nil || b.uuid != device.UUID {
			b = &board{uuid: device.UUID}
			m.boards[device.Index] = b
		}
		tenants := tenantsOf(train.DeviceID(name), sample, m.workers.owner, attempts)
		if measured, ok := b.read(train.DeviceID(name), sample, d, tenants); ok {
			meters = append(meters, measured)
			users = append(users, tenants.uses(train.DeviceID(name), d)...)
		}
	}
	return meters, users
}

// say logs a trouble when it changes, not every interval.
func (m *Meter) say(source string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if m.said[source] == text {
		return
	}
	m.said[source] = text
	if err != nil {
		m.log.Warn("meter cannot be read", "source", source, "error", err)
		return
	}
	m.log.Info("meter can be read again", "source", source)
}
