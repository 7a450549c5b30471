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
