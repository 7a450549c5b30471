package report

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/energy/tariff"
)

// monday is a winter Monday, 06:00 in Zurich.
var monday = time.Date(2026, 1, 5, 5, 0, 0, 0, time.UTC)

const site = `
currency: CHF
timezone: Europe/Zurich
price_per_kwh: 0.20
pue: 1.5
periods:
  - {name: day, days: [mon, tue, wed, thu, fri], from: "07:00", to: "20:00", price_per_kwh: 0.30}
carbon: {grams_per_kwh: 100}
`

func parse(t testing.TB, text string) *tariff.Tariff {
	t.Helper()
	parsed, err := tariff.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &parsed
}

func question(t testing.TB, by By) Question {
	site := parse(t, site)
	return Question{
		By: by, From: monday.Add(-24 * time.Hour), To: monday.Add(48 * time.Hour), Zone: site.Zone(),
		Price: func(at time.Time) tariff.Price { return site.At(at, nil) },
		Jobs: map[train.JobID]train.Job{
			"a": {ID: "a", State: train.StateSucceeded, RunSeconds: 7200, Spec: train.Spec{Name: "resnet", User: "ann", Tenant: "vision", TrainingSetSize: 100}},
			"b": {ID: "b", State: train.StateFailed, Spec: train.Spec{Name: "bert", User: "bob", Tenant: "text"}},
		},
		Accounts: map[train.JobID]train.Account{"a": {
			Job: "a", Energy: 3 * unit.KilowattHour, Epochs: 6, Samples: 600, Final: true, Waste: map[train.WasteCause]unit.Energy{train.WastePreempted: unit.KilowattHour},
		}},
		Default: func(j train.Job) (Default, bool) {
			return Default{Energy: 4 * unit.KilowattHour, Seconds: 6000}, j.Spec.Name == "resnet"
		},
	}
}

func account(job train.JobID, kwh float64) train.Account {
	e := unit.Energy(kwh * float64(unit.KilowattHour))
	return train.Account{
		Job: job, Energy: e, Components: map[string]unit.Energy{"gpu": e}, Seconds: 1800, PeakPower: 500 * unit.Watt, Methods: []string{"nvml_counter"},
		Metering: map[string]train.Metering{"gpu": {MeasuredSeconds: 1800, ExpectedSeconds: 2000}},
	}
}

// hours returns 06:00, 07:00 and the next midnight of two nodes.
func hours() []Hour {
	idle := map[string]unit.Energy{"gpu": unit.KilowattHour}
	return []Hour{
		{Node: "n1", Start: monday, Jobs: []train.Account{account("a", 1)}, Idle: idle, Methods: []string{"nvml_counter"}},
		{Node: "n1", Start: monday.Add(time.Hour), Jobs: []train.Account{account("a", 2), account("b", 1)}, GapSeconds: 360, Methods: []string{"nvml_counter"}},
		{Node: "n2", Start: monday.Add(18 * time.Hour), Unattributed: map[string]unit.Energy{"cpu": unit.KilowattHour / 2}, Methods: []string{"rapl"}},
	}
}

func TestRows(t *testing.T) {
	type row struct {
		Key              string
		KWh, Cost, Grams float64
		Jobs             int
	}
	for by, want := range map[By][]row{
		// 1 kWh before 07:00 at 0.20, the rest by day at 0.30, everything times 1.5 for the facility.
		ByJob:    {{"a", 3, 1.5*0.20 + 3*0.30, 450, 1}, {"b", 1, 0.45, 150, 1}, {"_idle", 1, 0.30, 150, 0}, {"_unattributed", 0.5, 0.15, 75, 0}},
		ByUser:   {{"ann", 3, 1.2, 450, 1}, {"bob", 1, 0.45, 150, 1}, {"_idle", 1, 0.30, 150, 0}, {"_unattributed", 0.5, 0.15, 75, 0}},
		ByTenant: {{"vision", 3, 1.2, 450, 1}, {"text", 1, 0.45, 150, 1}, {"_idle", 1, 0.30, 150, 0}, {"_unattributed", 0.5, 0.15, 75, 0}},
		ByNode:   {{"n1", 5, 1.95, 750, 2}, {"n2", 0.5, 0.15, 75, 0}},
		ByMonth:  {{"2026-01", 5.5, 2.1, 825, 2}},
	} {
		t.Run(string(by), func(t *testing.T) {
			r := Make(question(t, by), hours())
			var got []row
			for _, x := range r.Rows {
				got = append(got, row{x.Key, x.KWh, math.Round(*x.Cost*1e6) / 1e6, math.Round(*x.CO2eGrams*1e6) / 1e6, x.Jobs})
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			if r.Total.KWh != 5.5 || len(r.Days) != 2 {
				t.Errorf("total %g kWh in %d days, want 5.5 in 2", r.Total.KWh, len(r.Days))
			}
		})
	}
}

func TestAJobsRow(t *testing.T) {
	r := Make(question(t, ByJob), hours())
	a, b := r.Rows[0], r.Rows[1]
	if *a.JoulesPerEpoch != 3*3.6e6/6 || *a.JoulesPerSample != 3*3.6e6/600 || a.PeakWatts != 500 || a.MeanWatts != 3*3.6e6/3600 || a.Name != "resnet" {
		t.Errorf("%+v", a)
	}
	if a.Waste != unit.KilowattHour || b.Waste != unit.KilowattHour {
		t.Errorf("waste %s and %s: want what was lost, and all of the failed job's", a.Waste, b.Waste)
	}
	if a.CoverageRatio != 0.9 {
		t.Errorf("coverage %g, want 0.9", a.CoverageRatio)
	}
	if a.Saving == nil || a.Saving.EnergyRatio != 0.25 || math.Abs(a.Saving.TimePenaltyRatio-0.2) > 1e-9 {
		t.Errorf("saving %+v: want a quarter of the energy for a fifth more time", a.Saving)
	}
	if b.Saving != nil || b.JoulesPerEpoch != nil {
		t.Errorf("of a failed job without an epoch: %+v", b)
	}
}

// TestTheOwnerOfAnOldJobIsKnown reports jobs that the register has deleted.
func TestTheOwnerOfAnOldJobIsKnown(t *testing.T) {
	old := []Hour{{Node: "n1", Start: monday, Jobs: []train.Account{account("old", 1)}, Owners: map[train.JobID]contract.Owner{"old": {Name: "vgg", User: "eve", Tenant: "vision"}}}}
	for by, key := range map[By]string{ByUser: "eve", ByTenant: "vision", ByJob: "old"} {
		row := Make(question(t, by), old).Rows[0]
		if row.Key != key || by == ByJob && (row.Name != "vgg" || row.User != "eve") {
			t.Errorf("by %s: %+v", by, row)
		}
	}
}

// TestTheTimeOfAGangCountsOnce reports a gang of two nodes over half an hour.
func TestTheTimeOfAGangCountsOnce(t *testing.T) {
	second := account("a", 1)
	second.JointSeconds, second.JointPeakPower = second.Seconds, 900*unit.Watt
	gang := []Hour{{Node: "n1", Start: monday, Jobs: []train.Account{account("a", 1)}}, {Node: "n2", Start: monday, Jobs: []train.Account{second}}}
	for _, c := range []struct {
		by         By
		mean, peak float64
	}{{ByJob, 4000, 900}, {ByNode, 2000, 500}} {
		r := Make(question(t, c.by), gang)
		if row := r.Rows[len(r.Rows)-1]; row.MeanWatts != c.mean || row.PeakWatts != c.peak || r.Total.MeanWatts != 4000 || r.Total.PeakWatts != 900 {
			t.Errorf("by %s: %g W in the mean, %g at most, of all %g and %g", c.by, row.MeanWatts, row.PeakWatts,
				r.Total.MeanWatts, r.Total.PeakWatts)
		}
	}
}

func TestWhatIsNotKnownIsNotZero(t *testing.T) {
	q := question(t, ByUser)
	half := 0.5
	q.Price = func(at time.Time) tariff.Price {
		if at.Before(monday.Add(time.Hour)) {
			return tariff.Price{PUE: 1}
		}
		return tariff.Price{PerKWh: &half, PUE: 1}
	}
	r := Make(q, hours())
	if r.Total.CO2eGrams != nil || *r.Total.Cost != 1.75 || math.Abs(r.Total.PricedRatio-3.5/5.5) > 1e-9 {
		t.Errorf("%+v", r.Total)
	}
}

func TestOnlyWhatWasAskedForCounts(t *testing.T) {
	q := question(t, ByUser)
	q.From, q.To = monday.Add(time.Hour), monday.Add(2*time.Hour)
	if r := Make(q, hours()); r.Total.KWh != 3 || r.GapSeconds != 360 {
		t.Errorf("%g kWh, %g s: want those of one hour", r.Total.KWh, r.GapSeconds)
	}
	if r := Make(q, nil); len(r.Rows) != 0 || r.Total.KWh != 0 {
		t.Errorf("%+v of nothing", r)
	}
}

func TestRowsAddUpToWhatWasMeasured(t *testing.T) {
	base := question(t, ByJob)
	rapid.Check(t, func(t *rapid.T) {
		var all []Hour
		measured := unit.Energy(0)
		energy := func(name string) unit.Energy {
			e := unit.Energy(rapid.Int64Range(0, 1e15).Draw(t, name))
			measured += e
			return e
		}
		for i := range rapid.IntRange(0, 12).Draw(t, "hours") {
			h := Hour{
				Node: train.NodeID(fmt.Sprint("n", i%3)), Start: monday.Add(time.Duration(i) * time.Hour),
				Idle: map[string]unit.Energy{"gpu": energy("idle")}, Unattributed: map[string]unit.Energy{"cpu": energy("unattributed")},
			}
			for j := range rapid.IntRange(0, 4).Draw(t, "jobs") {
				gpu, cpu := energy("gpu"), energy("cpu")
				h.Jobs = append(h.Jobs,
					train.Account{Job: train.JobID(fmt.Sprint("j", j)), Energy: gpu + cpu, Components: map[string]unit.Energy{"gpu": gpu, "cpu": cpu}, Seconds: 60})
			}
			all = append(all, h)
		}
		for _, by := range Kinds() {
			q := base
			q.By = by
			r := Make(q, all)
			rows, days := unit.Energy(0), unit.Energy(0)
			for _, row := range r.Rows {
				rows += row.Energy
				if row.Energy != row.Active+row.Idle+row.Unattributed {
					t.Fatalf("%s: %+v", by, row)
				}
			}
			for _, day := range r.Days {
				days += day.Active + day.Idle + day.Unattributed
			}
			if rows != measured || days != measured || r.Total.Energy != measured {
				t.Fatalf("by %s: rows %d, days %d, total %d of %d uJ", by, rows, days, r.Total.Energy, measured)
			}
		}
	})
}
