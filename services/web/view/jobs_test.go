package view_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
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
	ids := func(list []*train.Job) (ids []string) {
		for _, j := range list {
			ids = append(ids, string(j.ID))
		}
		return ids
	}
	kept, left := view.Query{User: "ann", Finished: 20}.Choose(slices.Clone(jobs))
	want := []string{"nobodys"}
	for i := range 20 {
		want = append(want, fmt.Sprintf("j%02d", i))
	}
	if diff := cmp.Diff(append(want, "j28", "j29"), ids(kept)); diff != "" || left.Older != 8 || left.Others != 1 {
		t.Errorf("%+v\n%s", left, diff)
	}
	kept, left = view.Query{Newest: 2}.Choose(slices.Clone(jobs))
	if diff := cmp.Diff([]string{"nobodys", "bobs"}, ids(kept)); diff != "" || left.Older != 30 || left.Others != 0 {
		t.Errorf("%+v\n%s", left, diff)
	}
	kept, left = view.Query{Name: "resnet*", Project: "thesis", Labels: map[string]string{"phase": "warmup"}}.Choose([]*train.Job{
		{ID: "fits", Spec: train.Spec{Name: "resnet50", Project: "thesis", Labels: map[string]string{"phase": "warmup", "lr": "3"}}},
		{ID: "name", Spec: train.Spec{Name: "bert", Project: "thesis", Labels: map[string]string{"phase": "warmup"}}},
		{ID: "project", Spec: train.Spec{Name: "resnet", Labels: map[string]string{"phase": "warmup"}}},
		{ID: "value", Spec: train.Spec{Name: "resnet", Project: "thesis", Labels: map[string]string{"phase": "full"}}},
		{ID: "label", Spec: train.Spec{Name: "resnet", Project: "thesis"}},
	})
	if diff := cmp.Diff([]string{"fits"}, ids(kept)); diff != "" || left.Unlike != 4 {
		t.Errorf("%+v\n%s", left, diff)
	}
	kept, left = view.Query{User: "bob", States: []train.State{train.StateRunning}}.Choose(slices.Clone(jobs))
	if diff := cmp.Diff([]string{"bobs"}, ids(kept)); diff != "" || left.Others != 30 || left.OtherStates != 1 {
		t.Errorf("%+v\n%s", left, diff)
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
		data, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Jobs.Put(id, uint64(i+1), data); err != nil {
			t.Fatal(err)
		}
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

// An array is one line of a list that counts its jobs; a query unfolds it.
func TestAnArrayIsOneLine(t *testing.T) {
	x := index.New()
	put := func(j train.Job) {
		t.Helper()
		j.SubmittedAt = noon()
		data, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Jobs.Put(string(j.ID), 1, data); err != nil {
			t.Fatal(err)
		}
	}
	put(train.Job{ID: "a", State: train.StateQueued, Spec: train.Spec{Array: "0-2"}})
	for i, s := range []train.State{train.StateSucceeded, train.StateRunning, train.StateQueued} {
		put(train.Job{ID: train.MemberID("a", i), State: s, RunSeconds: 2, Spec: train.Spec{ArrayMember: &train.ArrayMember{Array: "a", Index: i}}})
	}
	put(train.Job{ID: "other", State: train.StateQueued})
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
