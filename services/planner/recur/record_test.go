package recur_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/recur"
)

func allowed() recur.Group {
	return recur.Group{BatchSizes: []int{8, 16, 32, 64, 128}, Default: 16, LimitsWatts: []float64{300}, MaxPowerWatts: 300, Eta: 1}
}

// TestARecordSettlesOnTheCheapest lets recurrences come, some of them two at a time, with a planner that is stopped
// after every step: the record goes through its JSON each time.
func TestARecordSettlesOnTheCheapest(t *testing.T) {
	joules := map[int]float64{8: 190, 16: 130, 32: 90, 64: 70, 128: 110}
	policy := recur.Switchyard{Prior: recur.StandardPrior()}
	dice := rand.New(rand.NewPCG(1, 2))
	var record recur.Record
	reload := func() {
		data, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		record = recur.Record{}
		if err := json.Unmarshal(data, &record); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(job train.JobID) int {
		c, err := record.Begin(job, allowed(), policy)
		if err != nil {
			t.Fatal(err)
		}
		reload()
		if again, err := record.Begin(job, allowed(), policy); err != nil || again != c {
			t.Fatalf("%s: %v at first, then %v, %v", job, c, again, err)
		}
		return c.BatchSize
	}
	end := func(job train.JobID, batch int) {
		cost := &contract.GroupAttempt{EnergyJoules: joules[batch] * (0.98 + 0.04*dice.Float64()), Seconds: 1, Reached: true}
		if !record.End(job, cost) {
			t.Fatalf("%s is not under way", job)
		}
		reload()
		if record.End(job, cost) {
			t.Fatalf("%s ends twice", job)
		}
	}
	at64 := 0
	for i := range 20 {
		first, second := train.JobID(fmt.Sprintf("a%d", i)), train.JobID(fmt.Sprintf("b%d", i))
		batch := begin(first)
		best := begin(second)
		if i > 0 && best != cheapest(record) {
			t.Errorf("while %s is under way another one gets %d, and the best known is %d", first, best, cheapest(record))
		}
		end(second, best)
		end(first, batch)
		if i >= 12 && batch == 64 {
			at64++
		}
	}
	if at64 < 7 || (*contract.Group)(&record).Recurrences() != 40 || len(record.Running) > 0 {
		t.Errorf("64 was taken %d times of 8, after %d recurrences with %d under way", at64, (*contract.Group)(&record).Recurrences(), len(record.Running))
	}
}

// cheapest is the batch size of the least mean energy.
func cheapest(r recur.Record) int {
	sum, n := map[int]float64{}, map[int]float64{}
	for _, a := range r.Attempts {
		sum[a.BatchSize] += a.EnergyJoules
		n[a.BatchSize]++
	}
	best := 0
	for b := range sum {
		if best == 0 || sum[b]/n[b] < sum[best]/n[best] {
			best = b
		}
	}
	return best
}

// Which job began last does not follow from its name. The order outlives the ends of others and a restart of the
// planner.
func TestJobsUnderWayAreInOrder(t *testing.T) {
	var record recur.Record
	begin := func(jobs ...train.JobID) {
		for _, job := range jobs {
			if _, err := record.Begin(job, allowed(), submitted{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin("nightly-8", "nightly-9", "nightly-10", "nightly-9")
	record.End("nightly-8", nil)
	data, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	record = recur.Record{}
	if err := json.Unmarshal(data, &record); err != nil {
		t.Fatal(err)
	}
	begin("nightly-11")
	if diff := cmp.Diff([]train.JobID{"nightly-9", "nightly-10", "nightly-11"}, (*contract.Group)(&record).UnderWay()); diff != "" {
		t.Error(diff)
	}
}

func TestARecordForgetsWhatIsOld(t *testing.T) {
	var record recur.Record
	for i := range 300 {
		job := train.JobID(fmt.Sprint(i))
		if _, err := record.Begin(job, allowed(), submitted{}); err != nil {
			t.Fatal(err)
		}
		record.End(job, &contract.GroupAttempt{EnergyJoules: float64(i), Reached: true})
	}
	if n := len(record.Attempts); n != 200 || record.Attempts[n-1].EnergyJoules != 299 {
		t.Errorf("%d attempts are kept, the last of %g J", n, record.Attempts[n-1].EnergyJoules)
	}
}

func TestAJobThatTellsNothingIsNotCounted(t *testing.T) {
	var record recur.Record
	if _, err := record.Begin("a", allowed(), submitted{}); err != nil {
		t.Fatal(err)
	}
	if !record.End("a", nil) || len(record.Attempts) > 0 || len(record.Running) > 0 {
		t.Errorf("left over: %+v", record)
	}
	if _, err := record.Begin("b", recur.Group{}, submitted{}); err == nil || len(record.Running) > 0 {
		t.Errorf("a choice out of nothing: %v, %+v", err, record)
	}
}

func TestWhatAJobUsuallyTakes(t *testing.T) {
	var r recur.Record
	run := func(batch, epochs int, joules, seconds float64, reached bool) {
		r.Running = map[train.JobID]contract.GroupChoice{"j": {BatchSize: batch}}
		r.End("j", &contract.GroupAttempt{EnergyJoules: joules, Seconds: seconds, Epochs: epochs, Reached: reached})
	}
	expect := func(what string, wantJoules, wantSeconds float64, wantKnown bool) {
		t.Helper()
		if joules, seconds, known := (*contract.Group)(&r).Usual(32); joules != wantJoules || seconds != wantSeconds || known != wantKnown {
			t.Errorf("%s: %g J, %g s, %v; want %g J, %g s, %v", what, joules, seconds, known, wantJoules, wantSeconds, wantKnown)
		}
	}
	run(64, 10, 500, 90, true)
	run(32, 3, 400, 50, false)
	expect("no job has got there", 0, 0, false)
	run(32, 10, 1000, 100, true)
	run(32, 20, 2000, 220, true)
	expect("the mean of two", 1500, 160, true)
	for range 300 {
		run(64, 10, 500, 90, true)
	}
	expect("long ago", 1500, 160, true)
	r.Limited(32, 150, []contract.PowerWindow{{LimitWatts: 150, EnergyJoules: 60, Seconds: 12}, {LimitWatts: 300, EnergyJoules: 110, Seconds: 10}})
	run(32, 15, 900, 180, true)
	expect("without the limit", 15*110, 15*10, true)
}
