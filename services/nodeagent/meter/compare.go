package meter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// Compared is what one meter says that a component used.
type Compared struct {
	Component string         `json:"component"`
	Device    train.DeviceID `json:"device,omitempty"`
	Method    string         `json:"method"`
	// Energy is what it measured in Seconds of the time; both are 0 with Trouble, which says why.
	Energy  unit.Energy `json:"energy_uj"`
	Seconds float64     `json:"seconds"`
	Trouble string      `json:"trouble,omitempty"`
	// Error is by how much its power differs from that of the first meter of the component, as a part of it; nil for
	// the first one, and without both.
	Error *float64 `json:"error_ratio,omitempty"`
}

// Watts is the mean power; 0 if nothing was measured.
func (c Compared) Watts() float64 {
	if c.Seconds == 0 {
		return 0
	}
	return c.Energy.Joules() / c.Seconds
}

// Comparison reads all meters of a machine side by side. A Meter takes the best one of each component only.
type Comparison struct {
	sources []Source
	gpus    gpu.Reader
	model   Model
	root    proc.Root

	busy  proc.Ticks
	board map[int]gpu.Sample
	rows  map[Compared]*Compared // by component, device and method
	order []*Compared
}

// NewComparison begins to compare: the first call of Read only takes the counters.
func NewComparison(c Config) *Comparison {
	return &Comparison{sources: c.Sources, gpus: c.GPUs, model: c.Model, root: c.Proc, board: map[int]gpu.Sample{}, rows: map[Compared]*Compared{}}
}

// add adds what a meter measured, or its trouble.
func (c *Comparison) add(key Compared, e unit.Energy, over time.Duration, trouble error) {
	row, known := c.rows[key]
	if !known {
		added := key
		row = &added
		c.rows[key], c.order = row, append(c.order, row)
	}
	if row.Trouble = ""; trouble != nil {
		row.Trouble = trouble.Error()
		return
	}
	row.Energy, row.Seconds = row.Energy+e, row.Seconds+over.Seconds()
}

// Read reads all meters, d after the last time; 0 is the first time.
func (c *Comparison) Read(d time.Duration) error {
	for _, s := range c.sources {
		spent, err := s.Read(d)
		if err != nil {
			c.add(Compared{Method: s.Method()}, 0, 0, err)
			continue
		}
		for _, e := range spent {
			over := d
			if e.Covered != nil {
				over = *e.Covered
			}
			if d > 0 && e.Energy >= 0 { // below 0 the counter was reset
				c.add(Compared{Component: e.Component, Method: s.Method()}, e.Energy, over, nil)
			}
		}
	}
	cpu, err := c.root.CPU()
	if err != nil {
		return fmt.Errorf("read the processor time: %w", err)
	}
	if d > 0 {
		total, _ := c.model.energy(max((cpu.Busy-c.busy).Seconds(), 0), d)
		c.add(Compared{Component: event.ComponentCPU, Method: methodModelled}, total, d, nil)
	}
	c.busy = cpu.Busy
	return c.readGPUs(d)
}

// readGPUs reads the energy counters of the GPUs and, beside them, their power.
func (c *Comparison) readGPUs(d time.Duration) error {
	if c.gpus == nil {
		return nil
	}
	devices, err := c.gpus.Devices()
	if err != nil {
		return fmt.Errorf("list the GPUs: %w", err)
	}
	for _, device := range devices {
		if device.Instance > 1 {
			continue // a slice of the GPU that was read for the first one
		}
		key := Compared{Component: event.ComponentGPU, Device: gpu.Device{Index: device.Index}.ID()}
		now, err := c.gpus.Sample(device.Index)
		if err != nil {
			key.Method = methodNVML
			c.add(key, 0, 0, err)
			continue
		}
		if last, seen := c.board[device.Index]; seen && d > 0 {
			c.addGPU(key, device.Simulated, last, now, d)
		}
		c.board[device.Index] = now
	}
	return nil
}

// addGPU adds what a GPU used between two samples by its counter and, beside it, by its power. A simulated one has
// neither: its energy is modelled.
func (c *Comparison) addGPU(key Compared, simulated bool, last, now gpu.Sample, d time.Duration) {
	counter, power := methodCounter, methodPower
	if simulated {
		counter, power = methodModelled, methodModelled
	}
	counts := now.HasEnergy && last.HasEnergy && now.Energy >= last.Energy
	if counts {
		key.Method = counter
		c.add(key, now.Energy-last.Energy, d, nil)
	}
	if now.HasPower && last.HasPower && !(simulated && counts) {
		key.Method = power
		c.add(key, ((now.Power + last.Power) / 2).Over(d), d, nil)
	}
}

// Result returns what was measured, by component, and beside it how the other meters of a component differ from the
// first one, which a Meter would take. What all components together used is compared with the whole node.
func (c *Comparison) Result() []Compared {
	all := make([]Compared, 0, len(c.order)+1)
	for _, row := range c.order {
		all = append(all, *row)
	}
	parts, found := c.components(all)
	if at := slices.IndexFunc(all, func(r Compared) bool { return r.Component == event.ComponentNode && r.Seconds > 0 }); at >= 0 && found {
		all = append(all, parts)
	}
	rank := func(component string) int {
		return slices.Index([]string{event.ComponentGPU, event.ComponentCPU, event.ComponentDRAM, event.ComponentNode}, component)
	}
	slices.SortStableFunc(all, func(a, b Compared) int {
		return cmp.Or(cmp.Compare(rank(a.Component), rank(b.Component)), cmp.Compare(a.Device, b.Device))
	})
	var first Compared
	for i, r := range all {
		if r.Component != first.Component || r.Device != first.Device || first.Seconds == 0 {
			first = r
			continue
		}
		if w := first.Watts(); w > 0 && r.Seconds > 0 {
			ratio := r.Watts()/w - 1
			all[i].Error = &ratio
		}
	}
	return all
}

// MethodSum is the method of a node's energy as the sum of its components.
const MethodSum = "sum of components"

// components adds up the power of the first meter of each component but the node.
func (c *Comparison) components(all []Compared) (sum Compared, found bool) {
	type part struct {
		component string
		device    train.DeviceID
	}
	taken := map[part]bool{}
	watts, seconds := 0.0, 0.0
	for _, r := range all {
		p := part{r.Component, r.Device}
		if r.Component == "" || r.Component == event.ComponentNode || taken[p] || r.Seconds == 0 {
			continue
		}
		taken[p] = true
		watts, seconds = watts+r.Watts(), max(seconds, r.Seconds)
	}
	energy := unit.Watts(watts).Over(time.Duration(seconds * float64(time.Second)))
	return Compared{Component: event.ComponentNode, Method: MethodSum, Energy: energy, Seconds: seconds}, len(taken) > 0
}
