package planner

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/plan/queue"
)

func TestRatesAreReadAndReadAgain(t *testing.T) {
	hour := func(h int) time.Time { return time.Date(2030, 1, 1, h, 0, 0, 0, time.UTC) }
	path := filepath.Join(t.TempDir(), "rates.csv")
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("datetime,grams_per_kwh,price_per_kwh\n2030-01-01T00:00:00Z,100,0.3\n2030-01-01T01:00:00Z,300,0.1\n", hour(0))
	g := &grid{path: path, carbonWeight: 0.75, log: slog.New(slog.DiscardHandler)}
	want := plan.Rates{
		{From: hour(0), Cost: 0.75*0.5 + 0.25*1.5, PricePerKWh: 0.3, GramsPerKWh: 100},
		{From: hour(1), Cost: 0.75*1.5 + 0.25*0.5, PricePerKWh: 0.1, GramsPerKWh: 300},
		{From: hour(2)},
	}
	if d := cmp.Diff(want, g.rates(hour(0).Add(time.Minute))); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff(want[1:], g.rates(hour(1))); d != "" {
		t.Fatal(d)
	}
	write("rubbish", hour(1))
	if d := cmp.Diff(want, g.rates(hour(0))); d != "" {
		t.Fatalf("a file with a mistake: %s", d)
	}
	write("2030-01-01T00:00:00Z,100,\n2030-01-01T01:00:00Z,100,\n", hour(2))
	if got := g.rates(hour(0)); len(got) != 3 || got[0].Cost != 0.75 {
		t.Fatalf("after a change: %v", got)
	}
	if got := (*grid)(nil).rates(hour(0)); got != nil {
		t.Errorf("without a file: %v", got)
	}
}

func TestRatesWithMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"2030-01-01T00:00:00Z,1,1\n":                           "1 rows: want at least 2",
		"2030-01-01T00:00:00Z,1\n":                             "wrong number of fields",
		"2030-01-01T00:00:00Z,1,1\n2030-01-01T00:00:00Z,1,1\n": "row 2: the times do not ascend",
		"2030-01-01T00:00:00Z,-1,NaN\n":                        `"-1": want a number`,
		"today,1,1\n":                                          "row 1: parsing time",
	} {
		if _, err := parseRates([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestAJobWaitsForCheaperEnergy has the live planner read a file in which energy costs a tenth from tomorrow on.
func TestAJobWaitsForCheaperEnergy(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "rates.csv"), time.Now().UTC().Truncate(time.Hour)
	text := "datetime,grams_per_kwh,price_per_kwh\n"
	for day, grams := range []int{500, 50, 50} {
		text += fmt.Sprintf("%s,%d,\n", now.Add(time.Duration(day)*24*time.Hour).Format(time.RFC3339), grams)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.node(2)
	patient, other := admitted("patient", 1), admitted("other", 1)
	patient.Spec.Energy = &train.EnergySpec{StartBy: new(now.Add(36 * time.Hour))}
	put(b, b.jobs, "patient", patient)
	put(b, b.jobs, "other", other)
	b.serve("--energy-rates", path, "--carbon-weight=1")
	all := b.await(event.StreamPlans, func(bus.Message) bool { return true })
	p := decode[event.PlanDecided](t, all[0]).Plan
	if len(p.Allocations) != 1 || p.Allocations[0].Job != "other" || len(p.Waiting) != 1 || p.Waiting[0].Blockers[0].Code != queue.Postponed {
		t.Fatalf("the plan is %+v", p)
	}
	all = b.await(event.StreamJobs, func(m bus.Message) bool { return m.Key == "plan/1/job/patient/queued" })
	told := decode[event.Queued](t, all[len(all)-1])
	if want := now.Add(24 * time.Hour).Format(time.RFC3339); !strings.Contains(told.Blockers[0].Message, want+": 90 % less CO2e") {
		t.Errorf("told is %q, want %s", told.Blockers[0].Message, want)
	}
}

// TestAJobWaitsForWhatTheEnergyServiceForetells has a night of a third of the price, twice as long as the evening.
func TestAJobWaitsForWhatTheEnergyServiceForetells(t *testing.T) {
	b := newBench(t)
	now := time.Now().UTC().Truncate(time.Hour)
	rates := openKV(b, contract.Rates)
	put(b, rates, contract.RatesKey, train.EnergyRates{
		Rates: []train.EnergyRate{{From: now, PricePerKWh: 0.3, GramsPerKWh: 100}, {From: now.Add(2 * time.Hour), PricePerKWh: 0.1, GramsPerKWh: 100}}, Until: now.Add(6 * time.Hour),
	})
	b.node(2)
	patient := admitted("patient", 1)
	patient.Spec.Energy = &train.EnergySpec{StartBy: new(now.Add(5 * time.Hour))}
	put(b, b.jobs, "patient", patient)
	b.serve("--carbon-weight=0.5")
	told := b.await(event.StreamJobs, func(m bus.Message) bool { return m.Key == "plan/1/job/patient/queued" })
	if want := now.Add(2*time.Hour).Format(time.RFC3339) + ": 67 % cheaper, 0 % less CO2e"; !strings.Contains(decode[event.Queued](t, told[0]).Blockers[0].Message, want) {
		t.Errorf("told is %q, want %s", decode[event.Queued](t, told[0]).Blockers[0].Message, want)
	}
}

func TestSettingsAboutEnergyAreChecked(t *testing.T) {
	_, err := settings.Of("--carbon-weight=2", "--power-limits=150,0")
	if err == nil {
		t.Fatal("accepted")
	}
	err = errors.Join(err, New(settings.Planner{EnergyRates: "/nowhere/rates.csv"}).Validate(run.Common{}))
	for _, want := range []string{"planner.energy_rates: look at the rates", "--carbon-weight 2: want 0 to 1", "--power-limits 150, 0: want more than 0 and at most 10000 W"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
