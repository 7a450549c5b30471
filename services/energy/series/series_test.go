package series

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/attribute"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func surroundings() Surroundings {
	return Surroundings{
		Cluster: "lab",
		Owner:   func(job train.JobID) Owner { return Owner{Tenant: "t", User: string(job[:1])} },
		Device:  func(train.DeviceID) train.Device { return train.Device{Model: "H100"} },
	}
}

// second is the n-th second of a node with one GPU, whose energy all goes to job a.
func second(boot string, n uint64, energy unit.Energy) Interval {
	from := noon.Add(time.Duration(n) * time.Second)
	return Interval{
		Measured: event.Measured{
			Node: "n1", BootID: boot, Sequence: n, From: from, To: from.Add(time.Second),
			Meters: []event.Meter{{Component: "gpu", Device: "gpu:0", Method: "nvml_counter", Energy: energy}},
		},
		Splits: []attribute.Split{attribute.Divide(attribute.Meter{Energy: energy, Held: true}, []attribute.Use{{Job: "a", Work: 1}})},
	}
}

func counterOf(points []Point) any {
	for _, p := range points {
		if p.Measurement == GPUPower {
			return p.Fields["energy_uj"]
		}
	}
	return nil
}

func TestCountersGoOn(t *testing.T) {
	var c Counters
	for i, step := range []struct {
		boot   string
		n      uint64
		energy unit.Energy
		want   any
		missed uint64
	}{
		{"b1", 1, 100, int64(100), 0},
		{"b1", 2, 50, int64(150), 0},
		{"b1", 2, 50, nil, 0}, // published twice
		{"b1", 5, 10, int64(160), 2},
		{"b1", 6, -900, nil, 0}, // the driver's counter was reset
		{"b2", 1, 40, int64(200), 0},
	} {
		points, missed := c.Add(second(step.boot, step.n, step.energy), uint64(i+1), surroundings())
		if got := counterOf(points); got != step.want || missed != step.missed {
			t.Errorf("step %d: counter %v with %d missed, want %v with %d", i, got, missed, step.want, step.missed)
		}
	}
	if c.Missing != 2 {
		t.Errorf("%d missing in all, want 2", c.Missing)
	}
}

// TestAGapCountsAgainstThoseWhoRan: an agent is away for half a minute, b is submitted in the meantime, and another
// agent reports a gap itself.
func TestAGapCountsAgainstThoseWhoRan(t *testing.T) {
	var c Counters
	both := []attribute.Use{{Job: "a", Work: 1}, {Job: "b", Work: 1}}
	step := func(boot string, sequence, at uint64, gap float64, uses []attribute.Use) map[any]any {
		in := second(boot, at, 100)
		in.Sequence, in.GapSeconds = sequence, gap
		in.Splits = []attribute.Split{attribute.Divide(attribute.Meter{Energy: 100, Held: true}, uses)}
		for _, u := range uses {
			in.Users = append(in.Users, event.Use{Job: u.Job, Component: "gpu", Device: "gpu:0", Work: u.Work})
		}
		points, _ := c.Add(in, c.StreamSequence+1, surroundings())
		expected := map[any]any{}
		for _, p := range points {
			if p.Measurement == JobEnergy {
				expected[p.Fields["job_id"]] = p.Fields["expected_s"]
			}
		}
		return expected
	}
	for i, s := range []struct {
		got, want map[any]any
	}{
		{step("b1", 1, 1, 9, both[:1]), map[any]any{"a": 1.0}},
		{step("b2", 1, 32, 0, both), map[any]any{"a": 31.0, "b": 1.0}},
		{step("b2", 2, 35, 2, both), map[any]any{"a": 3.0, "b": 3.0}},
		{step("b2", 9, 41, 0, both), map[any]any{"a": 6.0, "b": 6.0}},
	} {
		if d := cmp.Diff(s.want, s.got); d != "" {
			t.Errorf("step %d (-want +got)\n%s", i, d)
		}
	}
}

func TestAnIntervalReadAgainGivesTheSamePoints(t *testing.T) {
	before := Counters{Energy: map[string]unit.Energy{"gpu gpu:0": 7}}
	again := before
	first, _ := before.Add(second("b", 1, 100), 1, surroundings())
	repeated, _ := again.Add(second("b", 1, 100), 1, surroundings())
	if d := cmp.Diff(first, repeated); d != "" || len(first) == 0 {
		t.Errorf("(-first +again)\n%s", d)
	}
	if more, _ := before.Add(second("b", 1, 100), 1, surroundings()); more != nil {
		t.Errorf("counted twice: %v", more)
	}
}

// key is the identity of a point in the database.
func key(p Point) string {
	text := p.Measurement + p.Time.String()
	for _, k := range slices.Sorted(maps.Keys(p.Tags)) {
		text += fmt.Sprintf("|%s=%q", k, p.Tags[k])
	}
	return text
}

func TestNoPointHidesAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Interval{Measured: event.Measured{Node: "n1", BootID: "b", Sequence: 1, From: noon, To: noon.Add(time.Second)}}
		var jobs, measured unit.Energy
		for i := range rapid.IntRange(0, 6).Draw(t, "meters") {
			meter := event.Meter{
				Component: rapid.SampledFrom([]string{"gpu", "cpu", "dram"}).Draw(t, "component"), Device: train.DeviceID(fmt.Sprint("gpu:", i)),
				Method: rapid.SampledFrom([]string{"rapl", "modelled"}).Draw(t, "method"), Energy: unit.Energy(rapid.Int64Range(0, 1e12).Draw(t, "energy")),
			}
			var uses []attribute.Use
			for range rapid.IntRange(0, 5).Draw(t, "uses") {
				job := train.JobID(rapid.SampledFrom([]string{"a1", "a2", "a3", "b1", "b2"}).Draw(t, "job"))
				uses = append(uses, attribute.Use{Job: job, Work: rapid.Float64Range(0, 1).Draw(t, "work")})
			}
			split := attribute.Divide(attribute.Meter{Energy: meter.Energy, Held: true}, uses)
			for _, share := range split.Jobs {
				jobs += share.Energy
			}
			measured += meter.Energy
			in.Meters, in.Splits = append(in.Meters, meter), append(in.Splits, split)
		}
		var c Counters
		points, _ := c.Add(in, 1, surroundings())
		seen := map[string]bool{}
		var ofJobs, ofComponents int64
		for _, p := range points {
			if seen[key(p)] {
				t.Fatalf("two points %s", key(p))
			}
			seen[key(p)] = true
			switch p.Measurement {
			case JobEnergy:
				ofJobs += p.Fields["active_uj"].(int64)
			case ComponentEnergy:
				ofComponents += p.Fields["measured_uj"].(int64)
				if p.Fields["measured_uj"] != p.Fields["attributed_uj"].(int64)+p.Fields["idle_uj"].(int64)+p.Fields["unattributed_uj"].(int64) {
					t.Fatalf("%v does not add up", p.Fields)
				}
			}
		}
		if ofJobs != int64(jobs) || ofComponents != int64(measured) {
			t.Fatalf("%d of %d uJ of jobs, %d of %d in all", ofJobs, jobs, ofComponents, measured)
		}
	})
}

func TestCostAndCarbonAreThoseOfTheFacility(t *testing.T) {
	price, grams := 0.3, 400.0
	s := surroundings()
	s.Price = tariff.Price{PerKWh: &price, GramsPerKWh: &grams, PUE: 1.5, Estimated: true}
	points, _ := new(Counters).Add(second("b", 1, unit.KilowattHour), 1, s)
	found := map[string]map[string]any{}
	for _, p := range points {
		found[p.Measurement] = p.Fields
	}
	if f := found[JobEnergy]; fmt.Sprintf("%.6f", f["cost"]) != "0.450000" || f["co2e_g"] != 600.0 {
		t.Errorf("%v: want 1.5 kWh at 0.3 and 400 g", f)
	}
	if d := cmp.Diff(map[string]any{"price_kwh": 0.3, "gco2_kwh": 400.0, "estimated": true}, found[Grid]); d != "" {
		t.Errorf("grid (-want +got)\n%s", d)
	}
}

func TestTagsCanBeWritten(t *testing.T) {
	for word, want := range map[string]string{"": "unknown", "ann": "ann", "lab\nA": "lab A", `CORP\ann`: `CORP\ann`, `end\`: "end", " \\ ": "unknown"} {
		if got := tag(word); got != want {
			t.Errorf("%q becomes %q, want %q", word, got, want)
		}
	}
}

func TestGroundTruthUnderPipeTunesNames(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	got := GroundTruth(event.Learnt{Best: []event.BestSetting{
		{Cluster: "kind-2", BatchSize: 32, Setting: map[string]float64{"cores": 8, "memory_mib": 2560}, EpochSeconds: 57.6},
		{Cluster: "given-0", BatchSize: 64, Setting: map[string]float64{"power_limit_w": 200}, EpochSeconds: 0.4},
		{Cluster: "kind-0", BatchSize: 64, Setting: map[string]float64{"cores": 8}, EpochJoules: 3},
	}}, at)
	want := []Point{
		{"clusters", map[string]string{"clusterID": "2", "batch": "32"}, map[string]any{"cores": "8", "memory": "2.5", "duration": "58"}, at},
		{"clusters", map[string]string{"clusterID": "given-0", "batch": "64"}, map[string]any{"duration": "0"}, at},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestPowerUnderPipeTunesNames(t *testing.T) {
	in := event.Measured{Node: "eiger-1", From: noon, To: noon.Add(2 * time.Second), Meters: []event.Meter{
		{Component: "node", Method: "pdu", Energy: 500 * unit.Joule},
		{Component: "cpu", Device: "cpu:0", Method: "rapl", Energy: 100 * unit.Joule},
		{Component: "cpu", Device: "cpu:1", Method: "rapl", Energy: 60 * unit.Joule},
		{Component: "gpu", Method: "nvml_power", Energy: unit.Joule},
	}}
	tags := map[string]string{"nodename": "eiger-1"}
	want := []Point{
		{Measurement: "pcm_power/node_utilization", Tags: tags, Fields: map[string]any{"value": 80.0}, Time: in.To},
		{Measurement: "pdu_power/node_utilization", Tags: tags, Fields: map[string]any{"value": 250.0}, Time: in.To},
	}
	if d := cmp.Diff(want, PipeTune(in)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestPowerIsThatOfTheMetersOwnTime reads a plug that answers every five seconds.
func TestPowerIsThatOfTheMetersOwnTime(t *testing.T) {
	for covered, want := range map[float64]any{0: nil, 5: 200.0} {
		in := Interval{Splits: make([]attribute.Split, 1), Measured: event.Measured{Node: "n1", BootID: "b", Sequence: 1, From: noon, To: noon.Add(time.Second), Meters: []event.Meter{
			{Component: "node", Method: "pdu", Energy: unit.Energy(covered*200) * unit.Joule, CoveredSeconds: &covered},
		}}}
		points, _ := new(Counters).Add(in, 1, surroundings())
		if got := points[0].Fields["power_w"]; points[0].Measurement != NodePower || got != want {
			t.Errorf("%g s: %v W, want %v", covered, got, want)
		}
		var reported any
		if p := PipeTune(in.Measured); len(p) > 0 {
			reported = p[0].Fields["value"]
		}
		if reported != want {
			t.Errorf("%g s: %v W under PipeTune's names, want %v", covered, reported, want)
		}
	}
}

func TestAJobOfWhichNothingWasMeasuredHasNoEnergy(t *testing.T) {
	for energy, account := range map[any]train.Account{nil: {Final: true}, int64(110): {Energy: 110, Components: map[string]unit.Energy{"cpu": 110}}} {
		points := new(Timeline).Add(Seen{Job: train.Job{ID: "a"}, Account: account, Fact: event.FactSucceeded, Time: noon, Sequence: 1})
		if decision := points[1]; decision.Measurement != PlanDecision || decision.Fields["actual_uj"] != energy {
			t.Errorf("%v, want %v", decision, energy)
		}
	}
}

// TestAPlanIsHeldAgainstWhatCameOfIt plans a job at noon for two hours at 500 W, with a price that doubles after the
// first hour; the job takes one hour.
func TestAPlanIsHeldAgainstWhatCameOfIt(t *testing.T) {
	low, high := 0.2, 0.4
	price := func(at time.Time) tariff.Price {
		if at.Before(noon.Add(time.Hour)) {
			return tariff.Price{PerKWh: &low, PUE: 1.5}
		}
		return tariff.Price{PerKWh: &high, PUE: 1.5}
	}
	planned, err := json.Marshal(event.Planned{RemainingSeconds: 7200, PowerWatts: 500})
	if err != nil {
		t.Fatal(err)
	}
	var s Timeline
	s.Add(Seen{Job: train.Job{ID: "a"}, Fact: event.FactPlanned, Data: planned, Time: noon, Sequence: 1, Policy: "switchyard"})
	account := train.Account{Energy: 2 * unit.KilowattHour, Components: map[string]unit.Energy{"gpu": 2 * unit.KilowattHour}}
	points := s.Add(Seen{Job: train.Job{ID: "a", StartedAt: noon}, Account: account, Fact: event.FactSucceeded, Time: noon.Add(time.Hour), Sequence: 2, Price: price})
	want := map[string]any{
		"job_id": "a", "predicted_s": 7200.0, "actual_s": 3600.0, "predicted_uj": int64(unit.KilowattHour), "actual_uj": int64(2 * unit.KilowattHour),
		"predicted_cost": 0.45, "actual_cost": 0.6,
	}
	if d := cmp.Diff(want, points[1].Fields, cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestTheStoryOfAJob(t *testing.T) {
	started := noon
	job := train.Job{ID: "a", StartedAt: started, FirstPredictedFinish: started.Add(50 * time.Second), Spec: train.Spec{Tenant: "t", BatchSize: 32}}
	progress := train.EnergyProgress{Epochs: []train.EpochEnergy{{Attempt: 1, EpochsDone: 1, Energy: 70}, {Attempt: 1, EpochsDone: 2, Energy: 100}}}
	var s Timeline
	var reported []string
	take := func(sequence uint64, name string, body any, after time.Duration) {
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		seen := Seen{Job: job, Account: train.Account{Energy: 110, Components: map[string]unit.Energy{"cpu": 110}}, Fact: name, Data: data, Time: started.Add(after), Sequence: sequence, Policy: "switchyard"}
		if e, ok := body.(event.EpochEnded); ok {
			if energy, booked := EpochEnergy(progress, e); booked {
				seen.Epoch = &energy
			}
		}
		for _, p := range s.Add(seen) {
			reported = append(reported,
				fmt.Sprintln(p.Measurement, p.Tags["policy"], p.Fields["epoch"], p.Fields["energy_uj"], p.Fields["predicted_s"], p.Fields["actual_s"]))
		}
	}
	take(1, event.FactPlanned, event.Planned{}, 0)
	take(2, event.FactEpochEnded, event.EpochEnded{Attempt: 1, EpochsDone: 1, Devices: 2}, 10*time.Second)
	take(3, event.FactEpochEnded, event.EpochEnded{Attempt: 1, EpochsDone: 2, Devices: 2}, 20*time.Second)
	take(3, event.FactEpochEnded, event.EpochEnded{Attempt: 1, EpochsDone: 3, Devices: 2}, 21*time.Second) // already read
	take(4, event.FactEpochEnded, event.EpochEnded{Attempt: 2, EpochsDone: 2, Devices: 2}, 30*time.Second) // trained again
	take(5, event.FactSucceeded, event.Succeeded{EpochsDone: 2}, 40*time.Second)
	want := []string{
		"job_event  <nil> <nil> <nil> <nil>\n", "job_epoch  1 70 <nil> <nil>\n", "job_epoch  2 30 <nil> <nil>\n", "job_event  <nil> <nil> <nil> <nil>\n",
		"plan_decision switchyard <nil> <nil> 50 40\n",
	}
	if d := cmp.Diff(want, reported); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
