package meter

import (
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// board is the last reading of one GPU.
type board struct {
	uuid string
	last gpu.Sample
	seen bool
	// bare is the least power seen with nothing on the device: what it draws for being there.
	bare      unit.Power
	bareKnown bool
}

// read closes an interval of length d; ok is false where there is nothing to compare with.
func (b *board) read(id train.DeviceID, s gpu.Sample, d time.Duration, on tenants) (event.Meter, bool) {
	last, seen := b.last, b.seen
	b.last, b.seen = s, true
	if !seen || d <= 0 {
		return event.Meter{}, false
	}
	m := event.Meter{Component: componentGPU, Device: id, Capacity: d.Seconds()}
	switch {
	case s.HasEnergy && last.HasEnergy:
		m.Method, m.Energy = methodCounter, s.Energy-last.Energy
	case s.HasPower && last.HasPower:
		m.Method, m.Energy = methodPower, ((s.Power + last.Power) / 2).Over(d)
	default:
		return event.Meter{}, false
	}
	if m.Energy < 0 {
		return m, true // the counter was reset: whoever keeps the books is shown the step as it is
	}
	if on.empty() {
		m.Idle = m.Energy
		power := unit.Watts(m.Energy.Joules() / d.Seconds())
		if !b.bareKnown || power < b.bare {
			b.bare, b.bareKnown = power, true
		}
		return m, true
	}
	if b.bareKnown {
		m.Idle = min(m.Energy, b.bare.Over(d))
	}
	// With strangers on the device the jobs pay by their part of the work; without, all of what is active is theirs.
	if on.strangers > 0 {
		m.Busy = on.work() * d.Seconds()
	}
	return m, true
}

// tenants are the attempts on a device with their utilisation, and what others did there.
type tenants struct {
	jobs       map[run]float64
	strangers  int
	strangeUse float64
}

// tenantsOf tells whose processes are on a device. An attempt that holds the device is a tenant as soon as something unknown runs on it: the
// processes of a container may have numbers of their own. What is unknown on a device that attempts share is theirs in equal parts.
func tenantsOf(id train.DeviceID, s gpu.Sample, owner map[int]run, attempts []train.Attempt) tenants {
	t := tenants{jobs: map[run]float64{}}
	for _, p := range s.Processes {
		who, ours := owner[p.PID]
		if !ours {
			t.strangers++
			t.strangeUse += p.Utilisation
			continue
		}
		t.jobs[who] += p.Utilisation
	}
	if t.strangers == 0 || len(t.jobs) > 0 {
		return t
	}
	holders := slices.DeleteFunc(slices.Clone(attempts), func(a train.Attempt) bool { return !slices.Contains(a.Devices, id) })
	for _, a := range holders {
		t.jobs[runOf(a)] = t.strangeUse / float64(len(holders))
	}
	if len(holders) > 0 {
		t.strangers, t.strangeUse = 0, 0
	}
	return t
}

func (t tenants) empty() bool { return len(t.jobs) == 0 && t.strangers == 0 }

func (t tenants) work() float64 {
	sum := t.strangeUse
	for _, u := range t.jobs {
		sum += u
	}
	return sum
}

func (t tenants) uses(id train.DeviceID, d time.Duration) []event.Use {
	var uses []event.Use
	for who, utilisation := range t.jobs {
		uses = append(uses, event.Use{
			Job: who.job, Attempt: who.attempt, Component: componentGPU, Device: id, Work: utilisation * d.Seconds(),
		})
	}
	slices.SortFunc(uses, func(a, b event.Use) int { return strings.Compare(string(a.Job), string(b.Job)) })
	return uses
}
