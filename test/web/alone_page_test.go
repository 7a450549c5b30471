package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// The service alone is killed while a page looks. What changes meanwhile is on the page once it is back.
func TestThePageOutlivesTheServiceWebAlone(t *testing.T) {
	a, s := openAlone(t)
	job := func(id, name string, state train.State) {
		put(t, a.bus, contract.Jobs, id, train.Job{ID: train.JobID(id), State: state, SubmittedAt: time.Now(), Spec: train.Spec{Name: name, User: "ann"}})
	}
	job("stays", "stays", train.StateQueued)
	job("ends", "ends", train.StateRunning)
	a.start()
	s.open(a.link())
	s.at("#/jobs")
	s.shows("stays", "ends", "running", "live")
	for round, state := range []train.State{train.StateSucceeded, train.StateFailed, train.StateCancelled} {
		a.kill()
		s.shows("no connection")
		came := fmt.Sprintf("came-%d", round)
		job("ends", "ends", state)
		job(came, came, train.StateQueued)
		a.start()
		s.until("the page is right again", func() bool {
			text := s.text()
			return strings.Contains(text, came) && strings.Contains(text, "stays") && strings.Contains(text, string(state)) && strings.Contains(text, "live") && !strings.Contains(text, "does not answer")
		})
	}
}

// As long as the service has not answered, no page says that there is nothing.
func TestThePageClaimsNothingBeforeItKnows(t *testing.T) {
	a, s := openAlone(t)
	a.start()
	s.refuses("*://*:*/api/v1/plan")
	s.open(a.link())
	for _, page := range []string{"yard", "jobs", "plan", "experiments", "energy", "network"} {
		s.at("#/" + page)
		s.shows("no connection", "Switchyard does not answer")
		for _, claim := range []string{"No node", "Nothing waits", "0 of 0", "No job", "Nothing has been planned", "No search", "No hour"} {
			if text := s.text(); strings.Contains(text, claim) {
				t.Errorf("%s claims %q before the first answer:\n%s", page, claim, text)
			}
		}
	}
	s.refuses()
	s.at("#/yard")
	s.shows("live", "Nothing waits", "No node has reported yet")
}

// The banner names everything that needs a person, and each goes when its cause does.
func TestTheBannerNamesWhatNeedsAPerson(t *testing.T) {
	a, s := openAlone(t)
	now := time.Now()
	node := train.Node{ID: "n1", Name: "rack-1", Cores: 8, SeenAt: now, Devices: []train.Device{{ID: "gpu:0", Kind: train.KindGPU}}}
	full := node
	full.DiskTrouble, full.ReportsWaiting, full.MeterTroubles = "the disk of /var/lib/switchyard has 12 MiB of 40 GiB left", 7, map[string]string{"rapl": "permission denied"}
	put(t, a.bus, contract.Nodes, "n1", full)
	put(t, a.bus, contract.Nodes, "n2", train.Node{ID: "n2", Name: "rack-2", SeenAt: now.Add(-3 * time.Minute)})
	put(t, a.bus, contract.Jobs, "bad", train.Job{ID: "bad", State: train.StateFailed, Message: "out of memory", SubmittedAt: now, FinishedAt: now, Spec: train.Spec{Name: "bad"}})
	long := train.Job{ID: "long", State: train.StateRunning, SubmittedAt: now.Add(-9 * time.Hour), StartedAt: now.Add(-8 * time.Hour), Since: now.Add(-8 * time.Hour), Spec: train.Spec{Name: "long", EstimatedHours: 2}}
	long.RunSeconds = 8 * 3600
	put(t, a.bus, contract.Jobs, "long", long)
	put(t, a.bus, contract.Jobs, "late", train.Job{ID: "late", State: train.StateQueued, SubmittedAt: now, Spec: train.Spec{Name: "late", Deadline: new(now.Add(-time.Hour))}})
	put(t, a.bus, contract.Jobs, "mute", train.Job{ID: "mute", State: train.StateRunning, SubmittedAt: now, Spec: train.Spec{Name: "mute"}})
	put(t, a.bus, contract.Attempts, "mute", train.Attempt{Job: "mute", Number: 1, Node: "n1", Devices: []train.DeviceID{"gpu:0"}, Phase: train.PhaseRunning})
	put(t, a.bus, contract.Reports, "mute.1", train.AttemptReport{Job: "mute", Attempt: 1, Steps: train.Steps{Total: 40, Seconds: 1, At: now.Add(-5 * time.Hour)}})
	a.start()
	s.open(a.link())
	s.shows(
		"The disk of node rack-1 is full", "12 MiB of 40 GiB left", "holds 7 reports", "Meter rapl of node rack-1 does not work: permission denied", "The agent of node rack-2 is away for 3 m",
		"bad failed: out of memory", "long has run for 8 h", "2 h were estimated", "late has passed its deadline", "mute is silent",
	)
	put(t, a.bus, contract.Nodes, "n1", node)
	s.until("there is room again", func() bool { return !strings.Contains(s.text(), "is full") })
}

// The budget and the carbon of days are lines, and in words and tables.
func TestTheEnergyPageHasBudgetAndCarbon(t *testing.T) {
	a, s := openAlone(t)
	now := time.Now()
	for day := range 5 {
		at := now.Add(-time.Duration(day) * 24 * time.Hour)
		put(t, a.bus, contract.Hours, contract.HourKey("n1", at), contract.Book{
			Node: "n1", Methods: []string{"nvml"}, CO2eGramsPerKWh: new(100.0 * float64(day+1)), Owners: map[train.JobID]contract.Owner{"j": {Name: "resnet", User: "ann"}},
			Running: map[train.JobID]train.Account{"j": {Job: "j", Energy: 3 * unit.KilowattHour, Idle: unit.KilowattHour}}, Totals: map[string]contract.Totals{"gpu": {Idle: unit.KilowattHour}},
		})
	}
	put(t, a.bus, contract.Tenants, "vision", access.Tenant{Name: "vision", Bounds: access.Bounds{EnergyKWh: new(10.0)}})
	put(t, a.bus, contract.Spendings, contract.SpendingKey("vision"), contract.Spending{Tenant: "vision", Month: now.UTC().Format(contract.MonthForm), Energy: 4 * unit.KilowattHour})
	plan := train.Plan{Generation: 1, Policy: "switchyard", DecidedAt: now, PowerBudgetWatts: 250}
	if err := a.bus.Publish(a.ctx, event.Fact{Subject: event.PlanSubject(), Key: "plan/1", Body: event.PlanDecided{Plan: plan}}); err != nil {
		t.Fatal(err)
	}
	a.start()
	s.open(a.link())
	s.at("#/energy")
	s.shows("6.00 kWh a day: the power budget of 250 W", "carbon", "CO₂e", "Budgets of tenants", "vision", "40 %", "resnet")
	s.true(`document.querySelectorAll("svg[role=img] line.budget").length === 1 && document.querySelectorAll("svg[role=img] circle.carbon").length === 5`)
}
