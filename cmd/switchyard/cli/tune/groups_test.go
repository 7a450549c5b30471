package tune

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// submitted takes what the user submits.
type submitted struct{}

func (submitted) Name() string { return "submitted" }

func (submitted) Next(g *recur.Group) contract.GroupChoice {
	return contract.GroupChoice{BatchSize: g.Default, LimitWatts: 300}
}

// A group shows what its recurrences tried and cost, and what the next one gets.
func TestGroupsOfRecurringJobs(t *testing.T) {
	s := clitest.New(t, Command)
	var record recur.Record
	allowed := recur.Group{BatchSizes: []int{32, 64}, Default: 32, LimitsWatts: []float64{300}, MaxPowerWatts: 300, Eta: 0.5}
	for _, one := range []struct {
		job    train.JobID
		joules float64
		reach  bool
	}{{"night-0", 1000, true}, {"night-1", 5000, false}, {"night-2", 1200, true}} {
		if _, err := record.Begin(one.job, allowed, submitted{}); err != nil {
			t.Fatal(err)
		}
		record.End(one.job, &contract.GroupAttempt{EnergyJoules: one.joules, Seconds: one.joules / 10, Epochs: 4, Reached: one.reach})
	}
	if _, err := record.Begin("night-3", allowed, submitted{}); err != nil {
		t.Fatal(err)
	}
	record.Limited(32, 200, []contract.PowerWindow{{LimitWatts: 200, EnergyJoules: 1, Seconds: 1}})
	spec := train.Spec{Tenant: "vision lab", Energy: &train.EnergySpec{Group: "nightly"}}
	clitest.Put(t, s.Bus, contract.Groups, contract.GroupKey(spec), contract.Group(record))
	code, out, told := s.Run("tune", "groups")
	if want := []string{"nightly", "vision", "lab", "2", "1", "32", "200", "W"}; code != exit.OK || !strings.HasSuffix(strings.Join(strings.Fields(out), " "), strings.Join(want, " ")) {
		t.Errorf("exit code %d: %s%s", code, out, told)
	}
	_, out, _ = s.Run("tune", "groups", "nightly")
	for _, want := range []string{
		"group nightly of vision lab: 2 recurrences", "running    night-3 with batch size 32", "32 2 jobs 1100 J 1m50s 200 W",
		"1 32 1000 J 1m40s 4 reached", "2 32 1.39 Wh 8m20s 4 missed", "2 32 1200 J 2m00s 4 reached",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("want %q:\n%s", want, out)
		}
	}
	var lines []view.Group
	if _, out, _ = s.Run("tune", "groups", "nightly", "-o", "json"); json.Unmarshal([]byte(out), &lines) != nil || len(lines) != 1 || lines[0].Attempts[2].Recurrence != 2 || lines[0].Tenant != "vision lab" {
		t.Errorf("%s", out)
	}
	// The newest of two running jobs is shown, whatever their names.
	allowed.Default = 64
	if _, err := record.Begin("night-10", allowed, submitted{}); err != nil {
		t.Fatal(err)
	}
	if batch, _ := view.Groups(map[string]contract.Group{contract.GroupKey(spec): contract.Group(record)})[0].Chosen(); batch != 64 {
		t.Errorf("the newest job has %d", batch)
	}
	if code, _, told := s.Run("tune", "groups", "daily"); code != exit.Failed || !strings.Contains(told, "there is no group daily") {
		t.Errorf("exit code %d: %s", code, told)
	}
}
