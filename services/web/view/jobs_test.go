package view_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

func ago(d time.Duration) time.Time { return noon().Add(-d) }

func noon() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) }

func TestAQueryChoosesJobs(t *testing.T) {
	var jobs []*train.Job
	for i := range 30 {
		state := train.StateSucceeded
		if i == 29 || i == 28 { // the oldest ones still run
			state = train.StateRunning
		}
		jobs = append(jobs, &train.Job{ID: train.JobID(fmt.Sprintf("j%02d", i)), State: state, Spec: train.Spec{User: "ann"}, SubmittedAt: ago(time.Duration(i) * time.Minute)})
	}
	jobs = append(jobs, &train.Job{ID: "bobs", State: train.StateRunning, Spec: train.Spec{User: "bob"}, SubmittedAt: ago(-time.Second)},
		&train.Job{ID: "nobodys", State: train.StateSubmitted, SubmittedAt: ago(-2 * time.Second)})
	choose := func(q view.Query, jobs []*train.Job) (ids []string, left view.Left) {
		t.Helper()
		x := index.New()
		for _, j := range jobs {
			put(t, x, *j)
		}
		page, err := view.Jobs(x, q, noon())
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range page.Jobs {
			ids = append(ids, string(j.ID))
		}
		return ids, page.Left
	}
	kept, left := choose(view.Query{User: "ann", Finished: 20}, jobs)
	want := []string{"nobodys"}
	for i := range 20 {
		want = append(want, fmt.Sprintf("j%02d", i))
	}
	if diff := cmp.Diff(append(want, "j28", "j29"), kept); diff != "" || left.Older != 8 || left.Others != 1 {
		t.Errorf("%+v\n%s", left, diff)
	}
	kept, left = choose(view.Query{Newest: 2}, jobs)
	if diff := cmp.Diff([]string{"nobodys", "bobs"}, kept); diff != "" || left.Older != 30 || left.Others != 0 {
		t.Errorf("%+v\n%s", left, diff)
	}
	kept, left = choose(view.Query{Name: "resnet*", Project: "thesis", Labels: map[string]string{"phase": "warmup"}}, []*train.Job{
		{ID: "fits", Spec: train.Spec{Name: "resnet50", Project: "thesis", Labels: map[string]string{"phase": "warmup", "lr": "3"}}},
		{ID: "name", Spec: train.Spec{Name: "bert", Project: "thesis", Labels: map[string]string{"phase": "warmup"}}},
		{ID: "project", Spec: train.Spec{Name: "resnet", Labels: map[string]string{"phase": "warmup"}}},
		{ID: "value", Spec: train.Spec{Name: "resnet", Project: "thesis", Labels: map[string]string{"phase": "full"}}},
		{ID: "label", Spec: train.Spec{Name: "resnet", Project: "thesis"}},
	})
	if diff := cmp.Diff([]string{"fits"}, kept); diff != "" || left.Unlike != 4 {
		t.Errorf("%+v\n%s", left, diff)
	}
	kept, left = choose(view.Query{User: "bob", States: []train.State{train.StateRunning}}, jobs)
	if diff := cmp.Diff([]string{"bobs"}, kept); diff != "" || left.Others != 30 || left.OtherStates != 1 {
		t.Errorf("%+v\n%s", left, diff)
	}
}

// put writes the record of a job into an index.
func put(t testing.TB, x *index.Index, j train.Job) {
	t.Helper()
	data, err := json.Marshal(j)
	if err == nil {
		_, err = x.Jobs.Put(string(j.ID), 1, data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// thousands is an index of n queued jobs of ten users.
func thousands(t testing.TB, n int) *index.Index {
	t.Helper()
	x := index.New()
	for i := range n {
		id := fmt.Sprintf("job-%05d", i)
		j := train.Job{
			ID: train.JobID(id), State: train.StateQueued, Reason: "WaitingForDevices", Message: "needs 1 device, none is free", SubmittedAt: ago(time.Duration(i/2) * time.Second),
			Spec: train.Spec{Name: "train", User: fmt.Sprint("user", i%10), Command: []string{"python3", "train.py", "--lr", "0.1"}, BatchSize: 32, TrainingSetSize: 50000, MaxEpochs: 10},
		}
		put(t, x, j)
	}
	return x
}

// All pages together are the list, also while jobs come and go.
func TestPagesMakeTheList(t *testing.T) {
	x := thousands(t, 95)
	whole, err := view.Jobs(x, view.Query{User: "user3"}, noon())
	if err != nil || len(whole.Jobs) != 10 || whole.Left.Others != 85 {
		t.Fatalf("%d jobs, %+v, %v", len(whole.Jobs), whole.Left, err)
	}
	var paged []view.Job
	for q := (view.Query{User: "user3", Limit: 4}); ; {
		page, err := view.Jobs(x, q, noon())
		if err != nil {
			t.Fatal(err)
		}
		paged = append(paged, page.Jobs...)
		if q.After = page.Next; q.After == "" {
			break
		}
		// A new job belongs before this page, and the last one of the page is purged.
		newest, _ := json.Marshal(train.Job{ID: "newest", Spec: train.Spec{User: "user3"}, SubmittedAt: noon().Add(time.Hour)})
		_, _ = x.Jobs.Put("newest", 1000, newest)
		_, _ = x.Jobs.Put(string(page.Jobs[len(page.Jobs)-1].ID), 1000, nil)
	}
	if diff := cmp.Diff(whole.Jobs, paged); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkJobs lists 10,000 jobs: a page of all, and one user's.
func BenchmarkJobs(b *testing.B) {
	x := thousands(b, 10_000)
	for name, q := range map[string]view.Query{"all": {}, "page": {Limit: 1000}, "user": {User: "user3"}, "state": {States: []train.State{train.StateRunning}}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := view.Jobs(x, q, noon()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// array puts an array in a state, and its jobs in theirs, into an index.
func array(t *testing.T, x *index.Index, own train.State, of ...train.State) {
	t.Helper()
	put(t, x, train.Job{ID: "a", State: own, SubmittedAt: noon(), Spec: train.Spec{Array: fmt.Sprintf("0-%d", len(of)-1)}})
	for i, s := range of {
		member := train.Spec{ArrayMember: &train.ArrayMember{Array: "a", Index: i}}
		put(t, x, train.Job{ID: train.MemberID("a", i), State: s, RunSeconds: 2, SubmittedAt: noon(), Spec: member})
	}
}

// An array whose jobs all run is not queued, although its own record waits for them.
func TestAnArrayIsInTheStatesOfItsJobs(t *testing.T) {
	const queued, running, failed, succeeded = train.StateQueued, train.StateRunning, train.StateFailed, train.StateSucceeded
	for name, c := range map[string]struct {
		own              train.State
		of               []train.State
		asked            train.State
		folded, unfolded bool
	}{
		"all run, queued":           {queued, []train.State{running, running}, queued, false, false},
		"all run, running":          {queued, []train.State{running, running}, running, true, true},
		"one runs, queued":          {queued, []train.State{running, queued}, queued, true, false},
		"one runs, running":         {queued, []train.State{running, queued}, running, true, false},
		"the others have ended":     {queued, []train.State{running, failed}, running, true, true},
		"one has failed":            {queued, []train.State{running, failed}, failed, true, false},
		"ended, of a failed one":    {failed, []train.State{succeeded, failed}, failed, true, true},
		"ended, of a succeeded one": {failed, []train.State{succeeded, failed}, succeeded, true, false},
		"not yet unfolded":          {queued, nil, queued, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := index.New()
			array(t, x, c.own, c.of...)
			for _, folded := range []bool{true, false} {
				page, err := view.Jobs(x, view.Query{NoMembers: folded, States: []train.State{c.asked}}, noon())
				if err != nil {
					t.Fatal(err)
				}
				listed, want := slices.ContainsFunc(page.Jobs, func(j view.Job) bool { return j.ID == "a" }), c.unfolded
				if folded {
					want = c.folded
				}
				if listed != want {
					t.Errorf("jobs left out %v: the array is listed %v", folded, listed)
				}
			}
		})
	}
}

// An array costs what its jobs cost, unless one of them has no known cost.
func TestAnArrayCostsWhatItsJobsCost(t *testing.T) {
	x := index.New()
	array(t, x, train.StateFailed, train.StateSucceeded, train.StateFailed, train.StateCancelled)
	revision := uint64(0)
	cost := func(job string, cost *float64) {
		t.Helper()
		data, err := json.Marshal(train.Account{Job: train.JobID(job), Energy: unit.Joule, Cost: cost, Currency: "EUR", Final: true})
		if err == nil {
			revision++
			_, err = x.Accounts.Put(contract.AccountKey(train.JobID(job)), revision, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	of := func() *float64 {
		jobs, _ := view.Some(x, []train.JobID{"a"}, noon())
		return jobs[0].Cost
	}
	cost("a", new(0.0))
	cost("a-0", new(0.5))
	cost("a-1", nil)
	if got := of(); got != nil {
		t.Errorf("the array costs %v, and the cost of one of its jobs is unknown", *got)
	}
	cost("a-1", new(0.25))
	for range 2 {
		if got := of(); got == nil || *got != 0.75 {
			t.Errorf("the array does not cost 0.75: %v", got)
		}
	}
}

// An array is one line of a list that counts its jobs; a query unfolds it.
func TestAnArrayIsOneLine(t *testing.T) {
	x := index.New()
	array(t, x, train.StateQueued, train.StateSucceeded, train.StateRunning, train.StateQueued)
	put(t, x, train.Job{ID: "other", State: train.StateQueued, SubmittedAt: noon()})
	for _, c := range []struct {
		q    view.Query
		want []string
	}{
		{view.Query{NoMembers: true}, []string{"other", "a"}},
		{view.Query{}, []string{"other", "a-2", "a-1", "a-0", "a"}},
		{view.Query{NoMembers: true, Array: "a"}, []string{"a-2", "a-1", "a-0", "a"}},
		{view.Query{NoMembers: true, States: []train.State{train.StateRunning}}, []string{"a"}},
	} {
		page, err := view.Jobs(x, c.q, noon())
		var got []string
		for _, j := range page.Jobs {
			got = append(got, string(j.ID))
		}
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%+v: %v\n%s", c.q, err, diff)
		}
		if a := page.Jobs[slices.IndexFunc(page.Jobs, func(j view.Job) bool { return j.ID == "a" })]; a.State != train.StateRunning ||
			a.Message != "1 queued, 1 running, 1 succeeded" || a.RunSeconds != 6 || a.Jobs[train.StateQueued] != 1 {
			t.Errorf("the array is %s: %s, ran %v s", a.State, a.Message, a.RunSeconds)
		}
	}
}

// The record of a waiting job is written when the kind of reason changes. Everybody is shown the words of the newest
// plan.
func TestAWaitingJobIsShownWithTheReasonsOfTheNewestPlan(t *testing.T) {
	why := func(code, message string) []train.Reason {
		return []train.Reason{{Code: code, Message: message, Hint: "for " + message}}
	}
	for _, c := range []struct {
		about        string
		recorded     uint64
		record, plan []train.Reason
		want, second string
	}{
		{about: "newer words", recorded: 3, record: why("Queued", "ahead: a and b"), plan: append(why("Queued", "ahead: b"), why("QuotaReached", "4 of 4")...), want: "ahead: b", second: "4 of 4"},
		{about: "another kind, which the record will say soon", recorded: 3, record: why("Admitted", "waits for a plan"), plan: why("Queued", "ahead: b"), want: "waits for a plan"},
		{about: "a record that is newer than the plan", recorded: 8, record: why("Queued", "ahead: c"), plan: why("Queued", "ahead: b"), want: "ahead: c"},
		{about: "a job that the plan does not know", recorded: 3, record: why("Queued", "ahead: c"), want: "ahead: c"},
	} {
		x := index.New()
		job := train.Job{
			ID: "j", State: train.StateQueued, Generation: c.recorded, SubmittedAt: noon(),
			Reason: c.record[0].Code, Message: c.record[0].Message, Hint: c.record[0].Hint, Blockers: c.record,
		}
		put(t, x, job)
		plan := train.Plan{Generation: 7, DecidedAt: noon()}
		if c.plan != nil {
			plan.Waiting = []train.Waiting{{Job: "j", Blockers: c.plan}}
		}
		data, err := json.Marshal(plan)
		if err == nil {
			_, err = x.Plans.Put(index.PlanKey, 1, data)
		}
		page, listErr := view.Jobs(x, view.Query{}, noon())
		some, _ := view.Some(x, []train.JobID{"j"}, noon())
		if err != nil || listErr != nil || page.Jobs[0].Message != c.want || some[0].Message != c.want {
			t.Errorf("%s: %v, %v: the list says %q and %q, want %q", c.about, err, listErr, page.Jobs[0].Message, some[0].Message, c.want)
		}
		for _, j := range []train.Job{view.Describe(x, job, noon()).Job, view.Stand(x, job).Job, *view.Pick(x, []string{"j"}).Jobs[0]} {
			if j.Message != c.want || j.Hint != "for "+c.want || j.Blockers[0].Message != c.want || c.second != "" && j.Blockers[1].Message != c.second {
				t.Errorf("%s: %q, hint %q, for %+v", c.about, j.Message, j.Hint, j.Blockers)
			}
		}
		if kept := x.Jobs.Get("j"); kept.Message != c.record[0].Message {
			t.Errorf("%s: the record itself says %q now", c.about, kept.Message)
		}
	}
}
