package energy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/attribute"
)

// Book is what was booked for one node. It is changed by one compare-and-swap per interval, which makes the sums exact however often an interval is
// delivered: for each component, Measured = Attributed + Idle + Unattributed.
type Book struct {
	Node train.NodeID `json:"node"`
	// Boot and Sequence name the last interval that was booked, To is its end, StreamSequence its place in the stream.
	Boot           string    `json:"boot"`
	Sequence       uint64    `json:"sequence"`
	To             time.Time `json:"to"`
	StreamSequence uint64    `json:"stream_sequence"`
	// Totals are by component.
	Totals map[string]Totals `json:"totals"`
	// Methods are those of the last interval.
	Methods []string `json:"methods"`
	// GapSeconds is unmeasured time between intervals; Missing counts intervals that were measured and never came; Resets counts readings of a counter
	// that began anew, which are left out.
	GapSeconds float64 `json:"gap_seconds"`
	Missing    uint64  `json:"missing,omitempty"`
	Resets     uint64  `json:"resets,omitempty"`
	// Running are the accounts of jobs that have not been closed, as far as this node knows.
	Running map[train.JobID]train.Account `json:"running"`
}

// Totals are the parts of a component's energy.
type Totals struct {
	Measured     unit.Energy `json:"measured_uj"`
	Attributed   unit.Energy `json:"attributed_uj"`
	Idle         unit.Energy `json:"idle_uj"`
	Unattributed unit.Energy `json:"unattributed_uj"`
}

// What no node spends and no agent measures: sums of it would leave the range of numbers.
const (
	mostPower  = 1e6 * unit.Watt
	mostEnergy = 1e10 * unit.Joule
	mostWork   = 1e12
	mostGap    = 1e10
)

// checkMeasured says whether an interval can be booked at all.
func checkMeasured(m event.Measured, subject event.Subject) error {
	switch {
	case string(m.Node) != subject.ID:
		return fmt.Errorf("node %.80q in the body, %q in the subject", m.Node, subject.ID)
	case m.BootID == "" || m.Sequence == 0:
		return errors.New("no boot id or no sequence")
	case !m.To.After(m.From):
		return fmt.Errorf("interval from %s to %s", m.From, m.To)
	case !(m.GapSeconds >= 0 && m.GapSeconds <= mostGap):
		return fmt.Errorf("gap of %g s", m.GapSeconds)
	}
	for _, u := range m.Users {
		if _, err := train.ParseJobID(string(u.Job)); err != nil {
			return err
		}
		if !(u.Work >= 0 && u.Work <= mostWork) {
			return fmt.Errorf("work %g of job %s", u.Work, u.Job)
		}
	}
	return checkMeters(m.Meters, m.To.Sub(m.From))
}

// checkMeters says whether the energies of an interval can be booked. A negative one is a counter that began anew.
func checkMeters(meters []event.Meter, d time.Duration) error {
	sum, most := unit.Energy(0), mostEnergy
	if joules := mostPower.Watts() * d.Seconds(); joules < mostEnergy.Joules() {
		most = unit.Energy(joules * float64(unit.Joule))
	}
	for _, meter := range meters {
		switch {
		case meter.Component == "" || meter.Method == "":
			return errors.New("meter without component or method")
		case !(meter.Busy >= 0 && meter.Busy <= mostWork) || !(meter.Capacity >= 0 && meter.Capacity <= mostWork):
			return fmt.Errorf("meter of %.80q with work %g of %g", meter.Component, meter.Busy, meter.Capacity)
		case meter.Energy < -mostEnergy || meter.Energy > most || meter.Idle < -mostEnergy || meter.Idle > mostEnergy:
			return fmt.Errorf("meter of %.80q with %s in %s, %s of it idle", meter.Component, meter.Energy, d, meter.Idle)
		}
		if sum += max(meter.Energy, 0); sum > most {
			return fmt.Errorf("all meters together with %s in %s", sum, d)
		}
	}
	return nil
}

// clone makes a book that can be changed without changing b.
func (b *Book) clone() Book {
	c := *b
	c.Totals, c.Running = maps.Clone(b.Totals), maps.Clone(b.Running)
	return c
}

// has says whether an interval was booked before: at its place in the stream, or published twice.
func (b *Book) has(m event.Measured, stream uint64) bool {
	return stream <= b.StreamSequence || m.BootID == b.Boot && m.Sequence <= b.Sequence
}

// add books an interval. Energy of jobs whose account is closed has no account left to go to: it is unattributed.
func (b *Book) add(m event.Measured, stream uint64, closed func(train.JobID) bool) {
	b.follow(m)
	b.Node, b.Boot, b.Sequence, b.To, b.StreamSequence = m.Node, m.BootID, m.Sequence, m.To, stream
	if b.Totals == nil {
		b.Totals = map[string]Totals{}
	}
	if b.Running == nil {
		b.Running = map[train.JobID]train.Account{}
	}
	b.Methods = methods(m.Meters)
	spent := map[train.JobID]unit.Energy{}
	for _, u := range m.Users {
		if !closed(u.Job) {
			b.join(u.Job)
			spent[u.Job] += 0
		}
	}
	for _, meter := range m.Meters {
		for _, share := range b.divide(meter, m.Users, closed) {
			spent[share.Job] += share.Energy
		}
	}
	seconds := m.To.Sub(m.From).Seconds()
	for job, energy := range spent {
		a := b.Running[job]
		a.Seconds += seconds
		a.PeakPower = max(a.PeakPower, unit.Watts(energy.Joules()/seconds))
		a.MeanPower = unit.Watts(a.Energy.Joules() / a.Seconds)
		b.Running[job] = a
	}
}

// follow notes what lies between the last interval and this one.
func (b *Book) follow(m event.Measured) {
	switch {
	case b.Boot == m.BootID && m.Sequence > b.Sequence+1:
		b.Missing += m.Sequence - b.Sequence - 1
		b.GapSeconds += max(m.From.Sub(b.To).Seconds(), 0)
	case b.Boot == m.BootID:
		b.GapSeconds += max(m.GapSeconds, 0)
	case b.Boot != "":
		b.GapSeconds += max(m.From.Sub(b.To).Seconds(), 0)
	}
}

// join opens the account of a job that has none.
func (b *Book) join(job train.JobID) {
	if _, found := b.Running[job]; !found {
		b.Running[job] = train.Account{Job: job}
	}
}

// divide splits one meter and books its parts. It gives the shares of the jobs.
func (b *Book) divide(meter event.Meter, users []event.Use, closed func(train.JobID) bool) []attribute.Share {
	split := attribute.Divide(attribute.Meter{
		Energy: meter.Energy, Idle: meter.Idle, Busy: meter.Busy, Held: meter.Device != "",
	}, usesOf(meter, users))
	if split.Reset {
		b.Resets++
		return nil
	}
	t := b.Totals[meter.Component]
	t.Measured += meter.Energy
	t.Idle += split.Idle
	t.Unattributed += split.Unattributed
	var open []attribute.Share
	for _, share := range split.Jobs {
		if closed(share.Job) {
			t.Unattributed += share.Energy
			continue
		}
		t.Attributed += share.Energy
		a := b.Running[share.Job]
		a.Energy += share.Energy
		a.Methods = include(a.Methods, meter.Method)
		components := maps.Clone(a.Components)
		if components == nil {
			components = map[string]unit.Energy{}
		}
		components[meter.Component] += share.Energy
		a.Components = components
		b.Running[share.Job] = a
		open = append(open, share)
	}
	b.Totals[meter.Component] = t
	return open
}

// usesOf are the uses that count for a meter. Memory has no counter of its own work: the processor time stands for it.
func usesOf(meter event.Meter, users []event.Use) []attribute.Use {
	component := meter.Component
	if component == "dram" {
		component = "cpu"
	}
	var uses []attribute.Use
	for _, u := range users {
		if u.Component == component && u.Device == meter.Device {
			uses = append(uses, attribute.Use{Job: u.Job, Work: u.Work})
		}
	}
	return uses
}

func methods(meters []event.Meter) []string {
	var all []string
	for _, m := range meters {
		all = include(all, m.Method)
	}
	return all
}

// include adds a word to an ordered list that does not have it.
func include(list []string, word string) []string {
	if i, found := slices.BinarySearch(list, word); !found {
		return slices.Insert(slices.Clone(list), i, word)
	}
	return list
}

// combined is the account of a job over all nodes.
func combined(job train.JobID, books map[train.NodeID]Book) (train.Account, bool) {
	sum, found := train.Account{Job: job}, false
	for _, node := range slices.SortedFunc(maps.Keys(books), cmp.Compare) {
		a, ok := books[node].Running[job]
		if !ok {
			continue
		}
		found = true
		sum.Energy += a.Energy
		sum.Seconds += a.Seconds
		sum.PeakPower = max(sum.PeakPower, a.PeakPower)
		for _, m := range a.Methods {
			sum.Methods = include(sum.Methods, m)
		}
		for component, e := range a.Components {
			if sum.Components == nil {
				sum.Components = map[string]unit.Energy{}
			}
			sum.Components[component] += e
		}
	}
	if sum.Seconds > 0 {
		sum.MeanPower = unit.Watts(sum.Energy.Joules() / sum.Seconds)
	}
	return sum, found
}
