package energy

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// allOpen returns rules under which no account is closed.
func allOpen() rules {
	return rules{closed: func(train.JobID) bool { return false }, beside: gangs{}.beside}
}

func TestBookNotesWhatWasMissed(t *testing.T) {
	var b Book
	b.add(interval("n1", "b1", 1, cpu(10, 0, 0)), 1, allOpen())
	b.add(interval("n1", "b1", 4, cpu(10, 0, 0)), 2, allOpen()) // two were lost
	late := interval("n1", "b1", 5, cpu(10, 0, 0))
	late.GapSeconds = 7 // the agent reports it itself
	b.add(late, 3, allOpen())
	b.add(interval("n1", "b2", 9, cpu(10, 0, 0)), 4, allOpen()) // another agent, three seconds later
	b.add(interval("n1", "b2", 10, cpu(-99, 0, 0)), 5, allOpen())
	if b.Missing != 2 || b.GapSeconds != 2+7+3 || b.Resets != 1 {
		t.Errorf("missing %d, gap %g s, resets %d; want 2, 12 s, 1", b.Missing, b.GapSeconds, b.Resets)
	}
	if want := (contract.Totals{Measured: 40, Unattributed: 40}); b.Totals["cpu"] != want {
		t.Errorf("%+v, want %+v", b.Totals["cpu"], want)
	}
}

func TestMemoryIsSharedByProcessorTime(t *testing.T) {
	var b Book
	meters := []event.Meter{{Component: "dram", Method: "rapl", Energy: 100, Busy: 2}}
	b.add(interval("n1", "b", 1, meters, event.Use{Job: "a", Component: "cpu", Work: 1}), 1, allOpen())
	if got := b.Running["a"]; got.Components["dram"] != 50 || !slices.Equal(got.Methods, []string{"rapl"}) {
		t.Errorf("%+v, want half of the memory's energy", got)
	}
}

// TestTheHighestPowerIsThatOfTheMetersOwnTime reads a plug that reports three seconds at once.
func TestTheHighestPowerIsThatOfTheMetersOwnTime(t *testing.T) {
	var b Book
	for i, covered := range []float64{0, 0, 3} {
		n := uint64(i + 1)
		plug := event.Meter{Component: "node", Method: "redfish", Energy: unit.Energy(covered*100) * unit.Joule, CoveredSeconds: &covered}
		b.add(interval("n1", "b", n, append(cpu(60*unit.Joule, 0, 0), plug), event.Use{Job: "a", Component: "cpu", Work: 1}),
			n, allOpen())
	}
	if got := b.Running["a"].PeakPower; b.Running["a"].Energy != 300*unit.Joule || got != 100*unit.Watt {
		t.Errorf("%g W of a plug that shows 100 W", got.Watts())
	}
}

// TestTheNodesOfAGangCountTogether: two nodes report their seconds one after the other, one of them three seconds
// behind; then the job continues on one node.
func TestTheNodesOfAGangCountTogether(t *testing.T) {
	books, seen := map[train.NodeID]Book{"n1": {}, "n2": {}}, gangs{}
	publish := func(node train.NodeID, n uint64, watts unit.Energy) {
		b, r := books[node], allOpen()
		r.beside = seen.beside
		m := interval(node, "b", n, cpu(watts*unit.Joule, 0, 0), event.Use{Job: "a", Component: "cpu", Work: 1})
		b.add(m, n, r)
		books[node] = b
		seen.note(b, m.From)
		seen.note(b, m.From) // as after a redelivery
	}
	first, second := []unit.Energy{100, 300, 100, 100, 100}, []unit.Energy{50, 50, 200, 50}
	for n, watts := range first {
		publish("n1", uint64(n+1), watts)
		if behind := n - 3; behind >= 0 {
			publish("n2", uint64(behind+1), second[behind])
		}
	}
	publish("n2", 3, second[2])
	publish("n2", 4, second[3])
	got, _ := combined("a", []train.Account{books["n1"].Running["a"], books["n2"].Running["a"]})
	if got.Seconds != 5 || got.PeakPower != 350*unit.Watt || got.MeanPower != 210*unit.Watt {
		t.Errorf("%g W in the mean of %g s, %g W at most; want 210 W of 5 s, 350 W", got.MeanPower.Watts(), got.Seconds,
			got.PeakPower.Watts())
	}
}

// TestTheTimeOfAGangIsCountedOnceHoweverLate: the agent of one node was without the bus for five minutes and sends what
// it has kept; the other node has had a gap meanwhile.
func TestTheTimeOfAGangIsCountedOnceHoweverLate(t *testing.T) {
	books, seen := map[train.NodeID]Book{"n1": {}, "n2": {}}, gangs{}
	publish := func(node train.NodeID, n uint64) {
		b, r := books[node], allOpen()
		r.beside = seen.beside
		m := interval(node, "b", n, cpu(100*unit.Joule, 0, 0), event.Use{Job: "a", Component: "cpu", Work: 1})
		b.add(m, n, r)
		books[node] = b
		seen.note(b, m.From)
	}
	for n := range uint64(300) {
		if n < 100 || n >= 120 {
			publish("n1", n+1)
		}
	}
	for n := range uint64(300) {
		publish("n2", n+1)
	}
	got, _ := combined("a", []train.Account{books["n1"].Running["a"], books["n2"].Running["a"]})
	if got.Seconds != 300 {
		t.Errorf("%g s of a gang that ran for 300 s", got.Seconds)
	}
}

func TestUnusableIntervalsArePoison(t *testing.T) {
	good := interval("n1", "b", 1, cpu(1, 1, 0))
	if err := checkMeasured(good, factOf(good, "").Subject); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*event.Measured){
		"another node":     func(m *event.Measured) { m.Node = "n2" },
		"no boot":          func(m *event.Measured) { m.BootID = "" },
		"no number":        func(m *event.Measured) { m.Sequence = 0 },
		"no time":          func(m *event.Measured) { m.To = m.From },
		"backwards":        func(m *event.Measured) { m.To = m.From.Add(-time.Second) },
		"nameless meter":   func(m *event.Measured) { m.Meters = []event.Meter{{Method: "rapl"}} },
		"methodless meter": func(m *event.Measured) { m.Meters = []event.Meter{{Component: "cpu"}} },
		"no job id":        func(m *event.Measured) { m.Users = []event.Use{{Job: "../x", Component: "cpu", Work: 1}} },
		"negative work":    func(m *event.Measured) { m.Users = []event.Use{{Job: "a", Component: "cpu", Work: -1}} },
		"work beyond all":  func(m *event.Measured) { m.Users = []event.Use{{Job: "a", Component: "cpu", Work: 1e308}} },
		"negative busy":    func(m *event.Measured) { m.Meters = cpu(1, 1, -1) },
		"busy beyond all":  func(m *event.Measured) { m.Meters = cpu(1, 1, 1e300) },
		"too much energy":  func(m *event.Measured) { m.Meters = cpu(math.MaxInt64, 0, 1) },
		"too much in all":  func(m *event.Measured) { m.Meters = slices.Repeat(cpu(mostEnergy/20_000, 0, 1), 3) },
		"too little":       func(m *event.Measured) { m.Meters = cpu(math.MinInt64, 0, 1) },
		"a century":        func(m *event.Measured) { m.To = m.To.AddDate(99, 0, 0); m.Meters = cpu(mostEnergy+1, 0, 1) },
		"endless gap":      func(m *event.Measured) { m.GapSeconds = 1e308 },
		"negative gap":     func(m *event.Measured) { m.GapSeconds = -1 },
	} {
		bad := good
		spoil(&bad)
		if err := checkMeasured(bad, factOf(good, "").Subject); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestThePlugShowsMoreThanTheComponents(t *testing.T) {
	var b Book
	covered := 1.0
	second := func(n uint64, processors, plug unit.Energy) event.Measured {
		meters := append(cpu(processors, 0, 0),
			event.Meter{Component: "node", Method: "pdu", Energy: plug, CoveredSeconds: &covered})
		return interval("n1", "b", n, meters, event.Use{Job: "a", Component: "cpu", Work: 1})
	}
	// The plug's answer comes late: it shows nothing of the second second, and both in the third.
	for i, step := range []struct{ processors, plug, other, owed unit.Energy }{
		{60, 100, 40, 0}, {60, 0, 40, -60}, {60, 200, 120, 0}, {60, 50, 120, -10},
	} {
		b.add(second(uint64(i+1), step.processors, step.plug), uint64(i+1), allOpen())
		if got := b.Running["a"].Components["other"]; got != step.other || b.Owed != step.owed {
			t.Errorf("second %d: other %d, owed %d; want %d, %d", i+1, got, b.Owed, step.other, step.owed)
		}
	}
	if parts := b.Totals["cpu"].Measured + b.Totals["other"].Measured; b.Plug != parts+b.Owed {
		t.Errorf("the plug showed %d, booked were %d and %d is owed", b.Plug, parts, b.Owed)
	}
	if a := b.Running["a"]; a.Energy != 4*60+120 || !slices.Equal(a.Metering["other"].Methods, []string{"pdu"}) || a.Metering["cpu"].Coverage() != 1 {
		t.Errorf("%+v", a)
	}
	if _, wrong := b.Totals["node"]; wrong {
		t.Error("the whole was booked beside its parts")
	}
	b.add(interval("n1", "b", 5, cpu(60, 0, 0)), 5, allOpen())
	if b.Owed != 0 {
		t.Errorf("%d are owed by a plug that shows nothing any more", b.Owed)
	}
}

func TestIdlenessIsChargedByPolicy(t *testing.T) {
	meters := []event.Meter{{Component: "gpu", Device: "gpu:0", Method: "nvml_counter", Energy: 100, Idle: 60}}
	users := []event.Use{
		{Job: "a", Component: "gpu", Device: "gpu:0", Work: 1, ContextSeconds: 1, ReservedRatio: 0.5},
		{Job: "b", Component: "gpu", Device: "gpu:0", ReservedRatio: 0.5},
	}
	for _, reserved := range []bool{false, true} {
		var b Book
		r := allOpen()
		r.reserved = reserved
		b.add(interval("n1", "b", 1, meters, users...), 1, r)
		want := map[bool][4]unit.Energy{false: {40, 0, 0, 60}, true: {70, 30, 30, 0}}[reserved]
		if got := [4]unit.Energy{b.Running["a"].Energy, b.Running["b"].Energy, b.Running["b"].Idle, b.Totals["gpu"].Idle}; got != want {
			t.Errorf("reserved %v: %v, want %v", reserved, got, want)
		}
		if b.Running["a"].Active() != 40 {
			t.Errorf("active %d, want 40", b.Running["a"].Active())
		}
	}
}

func TestCoverageOfAComponent(t *testing.T) {
	gpu := event.Meter{Component: "gpu", Device: "gpu:0", Method: "nvml_power", Energy: 10}
	use := event.Use{Job: "a", Component: "gpu", Device: "gpu:0", Work: 1}
	var b Book
	b.add(interval("n1", "b", 1, []event.Meter{gpu}, use), 1, allOpen())
	b.add(interval("n1", "b", 2, nil, use), 2, allOpen()) // the GPU did not answer
	b.add(interval("n1", "b", 5, []event.Meter{gpu}, use), 3, allOpen())
	a := b.Running["a"]
	if got := a.Metering["gpu"]; got.MeasuredSeconds != 2 || got.ExpectedSeconds != 5 || got.Coverage() != 0.4 || a.GapSeconds != 2 {
		t.Errorf("%+v, gap %g s", got, a.GapSeconds)
	}
}

// TestBooksBalanceInAnyHistory books intervals that are lost, repeated or late, with resets, plugs and closed accounts,
// under both policies.
func TestBooksBalanceInAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rules{closed: func(j train.JobID) bool { return j == "closed" }, reserved: rapid.Bool().Draw(t, "reserved"), beside: gangs{}.beside}
		jobs := rapid.SampledFrom([]train.JobID{"a", "b", "c", "closed"})
		var b Book
		measured := map[string]unit.Energy{}
		stream, sequence, boot := uint64(0), uint64(0), 1
		for range rapid.IntRange(1, 25).Draw(t, "intervals") {
			sequence += uint64(rapid.IntRange(0, 3).Draw(t, "step")) // 0 repeats an interval, more than 1 loses some
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				boot, sequence = boot+1, 1
			}
			m := interval("n1", fmt.Sprint(boot), max(sequence, 1), nil)
			energy := rapid.Int64Range(-1e7, 3e8)
			for _, component := range []string{"cpu", "dram", "gpu", "node"} {
				meter := event.Meter{Component: component, Method: "m", Energy: unit.Energy(energy.Draw(t, component)), Idle: unit.Energy(energy.Draw(t, "idle"))}
				if component == "gpu" {
					meter.Device = "gpu:0"
				}
				m.Meters = append(m.Meters, meter)
			}
			for range rapid.IntRange(0, 5).Draw(t, "users") {
				u := event.Use{Job: jobs.Draw(t, "job"), Component: "cpu", Work: rapid.Float64Range(0, 2).Draw(t, "work"), ReservedRatio: rapid.Float64Range(0, 1).Draw(t, "kept")}
				if rapid.Bool().Draw(t, "gpu") {
					u.Component, u.Device, u.ContextSeconds = "gpu", "gpu:0", rapid.Float64Range(0, 1).Draw(t, "context")
				}
				m.Users = append(m.Users, u)
			}
			stream++
			if b.has(m, stream) {
				continue
			}
			b.add(m, stream, r)
			for _, meter := range m.Meters {
				if meter.Component != "node" {
					measured[meter.Component] += max(meter.Energy, 0)
				}
			}
		}
		accounts, attributed := unit.Energy(0), unit.Energy(0)
		for component, total := range b.Totals {
			if total.Measured != total.Attributed+total.Idle+total.Unattributed || component != "other" && total.Measured != measured[component] {
				t.Fatalf("%s: %+v, measured %d", component, total, measured[component])
			}
			attributed += total.Attributed
		}
		for _, a := range b.Running {
			accounts += a.Energy
			parts := unit.Energy(0)
			for _, e := range a.Components {
				parts += e
			}
			if parts != a.Energy || a.Idle > a.Energy || a.Estimated > a.Energy {
				t.Fatalf("%+v", a)
			}
		}
		if accounts != attributed || b.Owed > 0 {
			t.Fatalf("accounts hold %d, attributed were %d, owed %d", accounts, attributed, b.Owed)
		}
	})
}
