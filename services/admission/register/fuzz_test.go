package register

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// jobKinds are the kinds of facts that the register folds.
func jobKinds() (kinds []event.Kind) {
	for _, k := range event.Kinds() {
		if k.Entity == "job" {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// Facts in any order and with any bodies, a line each, the first letter of which chooses the fact. What is folded again
// changes nothing, a refused fact changes nothing, and the record stays small and can be stored.
func FuzzFold(f *testing.F) {
	kinds := jobKinds()
	var all bytes.Buffer
	for i := range kinds {
		all.WriteByte(byte('A' + i))
		all.WriteString(`{"attempt":1,"epochs_done":1,"devices":["cpu:0"],"node":"n","spec":{"name":"n","command":["true"],"max_epochs":2,"array":"0-1"},"state":"held","cause":"preempt"}` + "\n")
	}
	f.Add(all.Bytes())
	f.Add(bytes.Repeat(all.Bytes(), 2))
	f.Fuzz(func(t *testing.T, data []byte) {
		job := train.Job{ID: "job"}
		for i, line := range bytes.Split(data, []byte("\n")) {
			if len(line) == 0 || i > 100 {
				continue
			}
			kind := kinds[(int(line[0])+len(kinds)-'A'%len(kinds))%len(kinds)]
			body, err := event.DecodeBody(kind, line[1:])
			if err != nil {
				continue
			}
			fact := Fact{Name: kind.Fact, Time: time.Unix(int64(i), 0), Sequence: uint64(i + 1), Body: body}
			next, err := Fold(job, fact)
			if err != nil && !reflect.DeepEqual(next, job) {
				t.Fatalf("%s was refused, and changed the record: %v", kind.Fact, err)
			}
			if again, err := Fold(next, fact); next.LastSequence == fact.Sequence && (err != nil || !reflect.DeepEqual(again, next)) {
				t.Fatalf("%s counts twice: %v", kind.Fact, err)
			}
			if len(next.History) > MaxHistory {
				t.Fatalf("%d entries of history", len(next.History))
			}
			job = next
		}
		if _, err := json.Marshal(job); err != nil {
			t.Fatal(err)
		}
	})
}
