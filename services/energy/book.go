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
	"github.com/switchyard-dl/switchyard/services/energy/report"
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
	// Wall is what meters of the whole node told. It is booked as the other components, and what is beyond them as "other"; Owed is what the components told
	// that the plug has not shown yet, 0 or less: the two are not read at the same moment.
	Wall unit.Energy `json:"wall_uj,omitempty"`
	Owed unit.Energy `json:"owed_uj,omitempty"`
	// Running are the accounts of jobs that have not been closed, as far as this node knows; Recent is what each used in the last interval, Drawn its power.
	Running map[train.JobID]train.Account `json:"running"`
	Recent  map[train.JobID]unit.Energy   `json:"recent_uj,omitempty"`
	Drawn   map[train.JobID]unit.Power    `json:"drawn_uw,omitempty"`
	// Owners are those of the jobs, in the book of an hour: it is kept for longer than the register keeps a job.
	Owners map[train.JobID]report.Owner `json:"owners,omitempty"`
}

// componentOther is what a node spends beyond its measured components.
const componentOther = "other"

// rules are what decides who pays beside the interval itself.
type rules struct {
	// closed says whether a job's account is closed.
	closed func(train.JobID) bool
	// reserved charges idleness to the jobs that keep a device.
	reserved bool
	// beside is what a job drew meanwhile on other nodes, as far as these have told of the interval.
	beside func(train.JobID, event.Measured) (unit.Power, bool)
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
		for _, amount := range []float64{u.Work, u.ContextSeconds, u.ReservedRatio} {
			if !(amount >= 0 && amount <= mostWork) {
				return fmt.Errorf("work %g of job %s", amount, u.Job)
			}
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
		case !(meter.ContextSeconds >= 0 && meter.ContextSeconds <= mostWork) || meter.CoveredSeconds != nil && !(*meter.CoveredSeconds >= 0 && *meter.CoveredSeconds <= mostGap):
			return fmt.Errorf("meter of %.80q with times that cannot be", meter.Component)
		case meter.Energy < -mostEnergy || meter.Energy > most || meter.Idle < -mostEnergy || meter.Idle > mostEnergy || meter.Context < -mostEnergy || meter.Context > mostEnergy:
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
	c.Totals, c.Running, c.Recent, c.Drawn = maps.Clone(b.Totals), maps.Clone(b.Running), maps.Clone(b.Recent), maps.Clone(b.Drawn)
	return c
}

// has says whether an interval was booked before: at its place in the stream, or published twice.
func (b *Book) has(m event.Measured, stream uint64) bool {
	return stream <= b.StreamSequence || m.BootID == b.Boot && m.Sequence <= b.Sequence
}

// add books an interval. Energy of jobs whose account is closed has no account left to go to: it is unattributed.
func (b *Book) add(m event.Measured, stream uint64, r rules) {
	gap := b.follow(m)
	b.Node, b.Boot, b.Sequence, b.To, b.StreamSequence = m.Node, m.BootID, m.Sequence, m.To, stream
	if b.Totals == nil {
		b.Totals = map[string]Totals{}
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
	var wall *event.Meter
	for _, meter := range m.Meters {
		if meter.Component == event.ComponentNode {
			wall = &meter
			continue
		}
		uses := usesOf(meter, m.Users)
		split := divide(meter, uses, r)
		splits = append(splits, split)
		b.book(meter, split, m.Seconds(meter), power, r)
	}
	if wall != nil {
		b.bookWall(*wall, splits, m.Seconds(*wall), power, r)
	} else {
		b.Owed = 0
	}
	b.draw(m, power, r)
}

// draw notes the time that an interval was of the jobs that ran in it, and their power, in watts. Of a gang it counts once: with the node that tells of it first;
// the one that tells of it last has its highest power.
func (b *Book) draw(m event.Measured, watts map[train.JobID]float64, r rules) {
	seconds := m.To.Sub(m.From).Seconds()
	b.Drawn = map[train.JobID]unit.Power{}
	for job := range b.Recent {
		a, power := b.Running[job], unit.Watts(min(watts[job], mostPower.Watts()))
		b.Drawn[job] = power
		a.Seconds += seconds
		a.PeakPower = max(a.PeakPower, power)
		if others, told := r.beside(job, m); told {
			a.JointSeconds += seconds
			a.JointPeakPower = max(a.JointPeakPower, power+others)
		}
		a.MeanPower = unit.Watts(a.Energy.Joules() / a.Seconds)
		b.Running[job] = a
	}
}

// follow notes what lies between the last interval and this one, and gives the unmeasured time in seconds.
func (b *Book) follow(m event.Measured) float64 {
	if b.Boot == m.BootID {
		b.Missing += m.Sequence - b.Sequence - 1
	}
	gap := m.GapAfter(b.Boot, b.Sequence, b.To)
	b.GapSeconds += gap
	return gap
}

// join opens the account of a job that has none. One that ran before has missed the gap.
func (b *Book) join(job train.JobID, gap float64) {
	a, found := b.Running[job]
	if !found {
		a = train.Account{Job: job}
	} else {
		a.GapSeconds += gap
	}
	b.Running[job] = a
}

// expect notes for how long each component that a job uses should have been measured: once for the processors, and for each device.
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

// divide splits one meter.
func divide(meter event.Meter, uses []attribute.Use, r rules) attribute.Split {
	split := attribute.Divide(attribute.Meter{
		Energy: meter.Energy, Idle: meter.Idle, Context: meter.Context, ContextSeconds: meter.ContextSeconds, Busy: meter.Busy, Held: meter.Device != "",
	}, uses)
	if r.reserved {
		split.Reserve(uses)
	}
	return split
}

// book puts the parts of a meter into the totals and accounts, and adds to the power of each job, in watts, what it drew in the seconds that the meter tells of.
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
		if meter.Component == componentOther || meter.Component == event.ComponentDRAM { // nobody can expect them of every machine
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

// bookWall books what the plug shows beyond the components. What it shows too little is owed to the next intervals, and forgiven when it shows nothing at all.
func (b *Book) bookWall(wall event.Meter, splits []attribute.Split, seconds float64, power map[train.JobID]float64, r rules) {
	if wall.Energy < 0 {
		b.Owed = 0
		return
	}
	b.Wall += wall.Energy
	beyond := wall.Energy + b.Owed
	for _, s := range splits {
		if !s.Reset {
			beyond -= s.Sum()
		}
	}
	b.Owed = min(beyond, 0)
	b.book(event.Meter{Component: componentOther, Method: wall.Method}, attribute.Overhead(max(beyond, 0), splits), seconds, power, r)
}

// with is a copy of a map with one entry more: books share their maps with copies of themselves.
func with[V any](m map[string]V, key string, value V) map[string]V {
	c := maps.Clone(m)
	if c == nil {
		c = map[string]V{}
	}
	c[key] = value
	return c
}

// usesOf are the uses that count for a meter. Memory has no counter of its own work: the processor time stands for it.
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
	}
	if sum.Seconds > 0 {
		sum.MeanPower = unit.Watts(sum.Energy.Joules() / sum.Seconds)
	}
	return sum, found
}
