package view_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// Days, nodes and users add up to the total, and a day is one of the asker's zone.
func TestEnergyAddsUp(t *testing.T) {
	zone := time.FixedZone("east", 2*3600)
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, zone)
	at := func(node train.NodeID, hour time.Time) string { return contract.HourKey(node, hour) }
	book := func(node train.NodeID) contract.Book {
		return contract.Book{
			Node: node, Methods: []string{"rapl"}, Owners: map[train.JobID]contract.Owner{"j": {Name: "resnet", User: "ann"}},
			Running: map[train.JobID]train.Account{"j": {Job: "j", Energy: 10 + 1, Idle: 1}},
			Totals:  map[string]contract.Totals{"cpu": {Idle: 5, Unattributed: 3}},
		}
	}
	x := index.New()
	if _, err := x.Jobs.Put("new", 1, []byte(`{"id": "new", "spec": {"name": "bert", "user": "bob"}}`)); err != nil {
		t.Fatal(err)
	}
	e := view.SpentIn(x, map[string]contract.Book{
		at("a", from):                     book("a"),
		at("a", from.Add(23*time.Hour)):   book("a"),
		at("b", from.Add(24*time.Hour)):   book("b"),
		at("a", from.Add(-time.Hour)):     book("a"), // before
		at("a", from.Add(5*24*time.Hour)): book("a"), // after
		"no key of an hour":               book("a"),
	}, from, from.Add(5*24*time.Hour))
	spent := func(key string, hours unit.Energy) view.Spent {
		return view.Spent{Key: key, Active: 10 * hours, Idle: 6 * hours, Unattributed: 3 * hours}
	}
	fresh := book("b")
	fresh.Owners = nil
	fresh.Running = map[train.JobID]train.Account{"new": fresh.Running["j"]}
	late := view.SpentIn(x, map[string]contract.Book{at("b", from): fresh}, from, from.Add(time.Hour))
	if len(late.Users) != 1 || late.Users[0].Key != "bob" || late.Jobs[0].Name != "bert" {
		t.Errorf("a job whose book has no owner yet: %+v %+v", late.Users, late.Jobs)
	}
	job := view.Spent{Key: "j", Name: "resnet", Active: 30, Idle: 3}
	user := view.Spent{Key: "ann", Active: 30, Idle: 3}
	want := view.Energy{
		From: from, To: from.Add(5 * 24 * time.Hour), Methods: []string{"rapl"}, Quotas: []view.EnergyQuota{}, Total: spent("", 3),
		Days: []view.Spent{spent("2026-03-01", 2), spent("2026-03-02", 1)}, Nodes: []view.Spent{spent("a", 2), spent("b", 1)}, Users: []view.Spent{user}, Jobs: []view.Spent{job},
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
}

// The carbon of a day is that of its hours, and unknown if one of them is. A quota has what was used in this month.
func TestEnergyHasCarbonAndQuotas(t *testing.T) {
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	hour := func(grams *float64) contract.Book {
		return contract.Book{Node: "a", CO2eGramsPerKWh: grams, Totals: map[string]contract.Totals{"cpu": {Unattributed: unit.KilowattHour}}}
	}
	x := index.New()
	for key, value := range map[string]string{"vision": `{"name": "vision", "energy_kwh_per_month": 40}`, "nlp": `{"name": "nlp", "energy_kwh_per_month": 5}`, "free": `{"name": "free"}`} {
		if _, err := x.Tenants.Put(key, 1, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range map[string]string{"tenant.vision": `{"tenant": "vision", "month": "2026-03", "energy_uj": 7}`, "tenant.nlp": `{"tenant": "nlp", "month": "2026-02", "energy_uj": 9}`} {
		if _, err := x.Spendings.Put(key, 1, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	e := view.SpentIn(x, map[string]contract.Book{
		contract.HourKey("a", from): hour(new(100.0)), contract.HourKey("a", from.Add(time.Hour)): hour(new(300.0)),
		contract.HourKey("a", from.Add(24*time.Hour)): hour(new(100.0)), contract.HourKey("a", from.Add(25*time.Hour)): hour(nil),
	}, from, from.Add(48*time.Hour))
	if len(e.Days) != 2 || e.Days[0].CO2eGrams == nil || *e.Days[0].CO2eGrams != 400 || e.Days[1].CO2eGrams != nil || e.Total.CO2eGrams != nil {
		t.Errorf("carbon of the days: %+v, total %+v", e.Days, e.Total)
	}
	want := []view.EnergyQuota{{Tenant: "nlp", Month: "2026-03", KWh: 5}, {Tenant: "vision", Month: "2026-03", KWh: 40, Used: 7}}
	if diff := cmp.Diff(want, e.Quotas); diff != "" {
		t.Error(diff)
	}
}
