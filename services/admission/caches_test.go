package admission

import (
	"fmt"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestRecordsAreBounded(t *testing.T) {
	r := records{entries: map[train.JobID]bus.Entry[train.Job]{}}
	for i := range 3 * maxRecords {
		r.put(bus.Entry[train.Job]{Value: train.Job{ID: train.JobID(fmt.Sprint(i)), State: train.StateQueued}})
	}
	if len(r.entries) > maxRecords {
		t.Fatalf("%d records kept", len(r.entries))
	}
	r.put(bus.Entry[train.Job]{Value: train.Job{ID: "end", State: train.StateFailed}})
	if _, kept := r.entries["end"]; kept {
		t.Fatal("a record that has ended is kept")
	}
}

// The end of a job counts for its array also before its record has been seen here. A job that only has such an id
// counts as rejected.
func TestAnEndCountsForAnArrayByWhatTheJobIs(t *testing.T) {
	const array = train.JobID("a")
	of := func(member train.JobID, spec train.Spec) bus.Entry[*train.Job] {
		return bus.Entry[*train.Job]{Key: string(member), Value: &train.Job{ID: member, Spec: spec, State: train.StateQueued}}
	}
	l := queue{waiting: map[train.JobID]waiter{}, tenants: map[string]int{}, after: map[train.JobID]awaiting{}, submitted: map[train.JobID]train.JobID{}}
	l.observe(of(array, train.Spec{Array: "0-2"}), false)
	l.observe(of("a-0", train.Spec{ArrayMember: &train.ArrayMember{Array: array, Index: 0, Count: 3}}), false)
	l.observe(of("a-1", train.Spec{}), false)
	for member, want := range map[train.JobID]train.State{"a-0": train.StateSucceeded, "a-1": train.StateRejected, "a-2": train.StateSucceeded} {
		if got := l.waitingFor(member, train.StateSucceeded)[array]; got != want {
			t.Errorf("%s counts as %s, want %s", member, got, want)
		}
	}
}
