package energy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/attribute"
)

// Book books energy in the record of a node or of an hour.
type Book contract.Book

// componentOther is the energy of a node beyond its measured components.
const componentOther = "other"

// rules decide who pays, beside the interval itself.
type rules struct {
	// closed reports whether a job's account is closed.
	closed func(train.JobID) bool
	// reserved charges idle energy to the jobs that hold a device.
	reserved bool
	// beside returns the power of a job on other nodes at the same time, as far as these have reported the interval.
	beside func(train.JobID, event.Measured) (unit.Power, bool)
}

// No node spends and no agent measures more: sums would leave the range of numbers.
const (
	mostPower  = 1e6 * unit.Watt
	mostEnergy = 1e10 * unit.Joule
	mostWork   = 1e12
	mostGap    = 1e10
)

// checkMeasured returns an error if an interval cannot be booked.
func checkMeasured(m event.Measured, subject event.Subject) error {
	switch {
	case string(m.Node) != subject.ID:
		return fmt.Errorf("node %.80q in the body, %q in the subject", m.Node, subject.ID)
	case m.BootID == "" || m.Sequence == 0:
		return errors.New("no boot id or no sequence")
	case !m.To.After(m.From):
		return fmt.Errorf("interval from %s to %s", m.From, m.To)
	case !upTo(mostGap, m.GapSeconds):
		return fmt.Errorf("gap of %g s", m.GapSeconds)
	}
	for _, u := range m.Users {
		if _, err := train.ParseJobID(string(u.Job)); err != nil {
			return err
		}
		if !upTo(mostWork, u.Work, u.ContextSeconds, u.ReservedRatio) {
			return fmt.Errorf("work %g, context %g s or reserved %g of job %s", u.Work, u.ContextSeconds, u.ReservedRatio, u.Job)
		}
	}
	for _, e := range m.Epochs {
		if _, err := train.ParseJobID(string(e.Job)); err != nil {
			return err
		}
		if e.EpochsDone < 1 || e.Samples < 0 {
			return fmt.Errorf("epoch %d of job %s with %d samples", e.EpochsDone, e.Job, e.Samples)
		}
	}
	return checkMeters(m.Meters, m.To.Sub(m.From))
}

// checkMeters returns an error if the energies of an interval cannot be booked.
func checkMeters(meters []event.Meter, d time.Duration) error {
	sum, most := unit.Energy(0), mostEnergy
	if joules := mostPower.Watts() * d.Seconds(); joules < mostEnergy.Joules() {
		most = unit.Energy(joules * float64(unit.Joule))
	}
	for _, meter := range meters {
		if err := checkMeter(meter, most); err != nil {
			return fmt.Errorf("in %s: %w", d, err)
		}
		if sum += max(meter.Energy, 0); sum > most {
			return fmt.Errorf("all meters together with %s in %s", sum, d)
		}
	}
	return nil
}

// checkMeter returns an error if the energy of one meter cannot be booked. A negative energy is a counter reset.
func checkMeter(meter event.Meter, most unit.Energy) error {
	covered := 0.0
	if meter.CoveredSeconds != nil {
		covered = *meter.CoveredSeconds
	}
	switch {
	case meter.Component == "" || meter.Method == "":
		return errors.New("meter without component or method")
	case !upTo(mostWork, meter.Busy, meter.Capacity):
		return fmt.Errorf("meter of %.80q with work %g of %g", meter.Component, meter.Busy, meter.Capacity)
	case !upTo(mostWork, meter.ContextSeconds) || !upTo(mostGap, covered):
		return fmt.Errorf("meter of %.80q with %g s of contexts and %g s covered", meter.Component, meter.ContextSeconds, covered)
	case meter.Energy > most || !bounded(mostEnergy, meter.Energy, meter.Idle, meter.Context):
		return fmt.Errorf("meter of %.80q with %s, %s of it idle", meter.Component, meter.Energy, meter.Idle)
	}
	return nil
}

// upTo reports whether all amounts are numbers from 0 to most.
func upTo(most float64, amounts ...float64) bool {
	return !slices.ContainsFunc(amounts, func(amount float64) bool { return !(amount >= 0 && amount <= most) })
}

// bounded reports whether no energy exceeds most in size.
func bounded(most unit.Energy, energies ...unit.Energy) bool {
	return !slices.ContainsFunc(energies, func(e unit.Energy) bool { return e < -most || e > most })
}

// has reports whether an interval was booked before: at its place in the stream, or published twice.
func (b *Book) has(m event.Measured, stream uint64) bool {
	return stream <= b.StreamSequence || m.BootID == b.Boot && m.Sequence <= b.Sequence
}

// add books an interval. Energy of jobs whose account is closed is unattributed.
func (b *Book) add(m event.Measured, stream uint64, r rules) {
	gap := b.follow(m)
	b.Node, b.Boot, b.Sequence, b.To, b.StreamSequence = m.Node, m.BootID, m.Sequence, m.To, stream
	if b.Totals == nil {
		b.Totals = map[string]contract.Totals{}
	}
	if b.Running == nil {
		b.Running = map[train.JobID]train.Account{}
	}
	b.Methods = methods(m.Meters)
	b.Recent = map[train.JobID]unit.Energy{}
	for _, u := range m.Users {
		if _, joined := b.Recent[u.Job]; !joined && !r.closed(u.Job) {
			b.join(u.Job, gap)
			b.Recent[u.Job] = 0
		}
	}
	b.expect(m, gap, r)
	power := map[train.JobID]float64{}
	var splits []attribute.Split
	var plug *event.Meter
	for _, meter := range m.Meters {
		if meter.Component == event.ComponentNode {
			plug = &meter
			continue
		}
		uses := usesOf(meter, m.Users)
		split := divide(meter, uses, r)
		splits = append(splits, split)
		b.book(meter, split, m.Seconds(meter), power, r)
	}
	if plug != nil {
		b.bookPlug(*plug, splits, m.Seconds(*plug), power, r)
	} else {
		b.Owed = 0
	}
	b.draw(m, power, r)
}

// draw adds the time of an interval to the jobs that ran in it, and their power, in watts. For a gang it counts once:
// with the node that reports it first; the node that reports it last has its highest power.
func (b *Book) draw(m event.Measured, watts map[train.JobID]float64, r rules) {
	seconds := m.To.Sub(m.From).Seconds()
	b.Drawn = map[train.JobID]unit.Power{}
	for job := range b.Recent {
		a, power := b.Running[job], unit.Watts(min(watts[job], mostPower.Watts()))
		b.Drawn[job] = power
		a.Seconds += seconds
		a.PeakPower = max(a.PeakPower, power)
		if others, known := r.beside(job, m); known {
			a.JointSeconds += seconds
			a.JointPeakPower = max(a.JointPeakPower, power+others)
		}
		a.MeanPower = unit.Watts(a.Energy.Joules() / a.Seconds)
		b.Running[job] = a
	}
}

// follow records what lies between the last interval and this one, and returns the unmeasured time in seconds.
func (b *Book) follow(m event.Measured) float64 {
	if b.Boot == m.BootID {
		b.Missing += m.Sequence - b.Sequence - 1
	}
	gap := m.GapAfter(b.Boot, b.Sequence, b.To)
	b.GapSeconds += gap
	return gap
}

// join opens the account of a job that has none. A job that ran before has missed the gap.
func (b *Book) join(job train.JobID, gap float64) {
	a, found := b.Running[job]
	if !found {
		a = train.Account{Job: job}
	} else {
		a.GapSeconds += gap
	}
	b.Running[job] = a
}

// expect adds the time for which each component that a job uses should have been measured: once for the processors, and
// for each device.
func (b *Book) expect(m event.Measured, gap float64, r rules) {
	type place struct {
		job       train.JobID
		component string
		device    train.DeviceID
	}
	seen, seconds := map[place]bool{}, m.To.Sub(m.From).Seconds()
	for _, u := range m.Users {
		at := place{u.Job, u.Component, u.Device}
		if r.closed(u.Job) || seen[at] {
			continue
		}
		seen[at] = true
		a := b.Running[u.Job]
		known, before := a.Metering[u.Component]
		known.ExpectedSeconds += seconds
		if before {
			known.ExpectedSeconds += gap
		}
		a.Metering = with(a.Metering, u.Component, known)
		b.Running[u.Job] = a
	}
}

func divide(meter event.Meter, uses []attribute.Use, r rules) attribute.Split {
	split := attribute.Divide(attribute.Meter{
		Energy: meter.Energy, Idle: meter.Idle, Context: meter.Context, ContextSeconds: meter.ContextSeconds, Busy: meter.Busy, Held: meter.Device != "",
	}, uses)
	if r.reserved {
		split.Reserve(uses)
	}
	return split
}

// book adds the parts of a meter to the totals and accounts, and to the power of each job, in watts, its power in the
// seconds that the meter covers.
func (b *Book) book(meter event.Meter, split attribute.Split, seconds float64, power map[train.JobID]float64, r rules) {
	if split.Reset {
		b.Resets++
		return
	}
	t := b.Totals[meter.Component]
	t.Measured += split.Sum()
	t.Idle += split.Idle
	t.Unattributed += split.Unattributed
	for _, share := range split.Jobs {
		energy := share.Energy + share.Idle
		if r.closed(share.Job) {
			t.Unattributed += energy
			continue
		}
		t.Attributed += energy
		a := b.Running[share.Job]
		a.Energy, a.Idle, a.Estimated = a.Energy+energy, a.Idle+share.Idle, a.Estimated+share.Estimated
		a.Methods = include(a.Methods, meter.Method)
		a.Components = with(a.Components, meter.Component, a.Components[meter.Component]+energy)
		how := a.Metering[meter.Component]
		how.Methods = include(how.Methods, meter.Method)
		how.MeasuredSeconds += seconds
		if meter.Component == componentOther || meter.Component == event.ComponentDRAM { // not every machine can measure them
			how.ExpectedSeconds = how.MeasuredSeconds
		}
		a.Metering = with(a.Metering, meter.Component, how)
		b.Running[share.Job] = a
		b.Recent[share.Job] += energy
		if seconds > 0 {
			power[share.Job] += energy.Joules() / seconds
		}
	}
	b.Totals[meter.Component] = t
}

// bookPlug books what the plug shows beyond the components. If it shows too little, the deficit is carried to the next
// intervals, and dropped when the plug shows nothing at all.
func (b *Book) bookPlug(plug event.Meter, splits []attribute.Split, seconds float64, power map[train.JobID]float64, r rules) {
	if plug.Energy < 0 {
		b.Owed = 0
		return
	}
	b.Plug += plug.Energy
	beyond := plug.Energy + b.Owed
	for _, s := range splits {
		if !s.Reset {
			beyond -= s.Sum()
		}
	}
	b.Owed = min(beyond, 0)
	b.book(event.Meter{Component: componentOther, Method: plug.Method}, attribute.Overhead(max(beyond, 0), splits),
		seconds, power, r)
}

// with returns a copy of a map with one more entry: books share their maps with copies of themselves.
func with[V any](m map[string]V, key string, value V) map[string]V {
	c := maps.Clone(m)
	if c == nil {
		c = map[string]V{}
	}
	c[key] = value
	return c
}

// usesOf returns the uses that count for a meter. Memory has no work counter of its own: the processor time stands for
// it.
func usesOf(meter event.Meter, users []event.Use) []attribute.Use {
	component := meter.Component
	if component == event.ComponentDRAM {
		component = event.ComponentCPU
	}
	var uses []attribute.Use
	for _, u := range users {
		if u.Component == component && u.Device == meter.Device {
			uses = append(uses, attribute.Use{
				Job: u.Job, Work: u.Work, ContextSeconds: u.ContextSeconds, Reserved: u.ReservedRatio, Estimated: u.Estimated,
			})
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

// include adds a word to an ordered list that lacks it.
func include[S ~string](list []S, word S) []S {
	if i, found := slices.BinarySearch(list, word); !found {
		return slices.Insert(slices.Clone(list), i, word)
	}
	return list
}

// combined returns the account of a job of which some nodes have a share; false if none has.
func combined(job train.JobID, shares []train.Account) (train.Account, bool) {
	sum := train.Account{Job: job}
	for _, a := range shares {
		add(&sum, a)
	}
	return sum, len(shares) > 0
}

// add adds the account of another node, or of an earlier life of the job.
func add(sum *train.Account, a train.Account) {
	sum.Energy, sum.Idle, sum.Estimated = sum.Energy+a.Energy, sum.Idle+a.Idle, sum.Estimated+a.Estimated
	sum.Seconds, sum.GapSeconds = sum.Seconds+a.Seconds-a.JointSeconds, sum.GapSeconds+a.GapSeconds
	sum.PeakPower = max(sum.PeakPower, a.PeakPower, a.JointPeakPower)
	for _, m := range a.Methods {
		sum.Methods = include(sum.Methods, m)
	}
	for component, e := range a.Components {
		sum.Components = with(sum.Components, component, sum.Components[component]+e)
	}
	for component, m := range a.Metering {
		how := sum.Metering[component]
		for _, method := range m.Methods {
			how.Methods = include(how.Methods, method)
		}
		how.MeasuredSeconds, how.ExpectedSeconds = how.MeasuredSeconds+m.MeasuredSeconds, how.ExpectedSeconds+m.ExpectedSeconds
		sum.Metering = with(sum.Metering, component, how)
	}
	if sum.Seconds > 0 {
		sum.MeanPower = unit.Watts(sum.Energy.Joules() / sum.Seconds)
	}
}
