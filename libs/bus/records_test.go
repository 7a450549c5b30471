package bus

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestEqualBytesAreDecodedOnce: and forgotten with the last value that anybody holds.
func TestEqualBytesAreDecodedOnce(t *testing.T) {
	r := NewRecords()
	x, y := &Bus{records: r}, &Bus{records: r}
	var held []*train.Job
	for i := range 100 {
		data := fmt.Appendf(nil, `{"id":"j%d","spec":{"command":["true"]}}`, i)
		a, err := Decode[train.Job](x, data)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := Decode[train.Job](y, data); a != b || a.ID != train.JobID(fmt.Sprintf("j%d", i)) {
			t.Fatalf("%v and %v", a, b)
		}
		other, err := Decode[train.Attempt](y, []byte(`{"job":"j"}`))
		if err != nil || other.Job != "j" {
			t.Fatalf("%v, %v", other, err)
		}
		held = append(held, a)
	}
	if _, err := Decode[train.Job](x, []byte(`{"id":7}`)); err == nil {
		t.Error("no error for what is no job")
	}
	for len(r.known()) > 1 { // the attempt may live on
		runtime.GC()
		held = held[:0]
		clear(held[:cap(held)])
	}
}

// known returns what is not forgotten.
func (r *Records) known() []recordKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []recordKey
	for key := range r.values {
		keys = append(keys, key)
	}
	return keys
}

// TestAReaderThatChangesAValueIsFound: the check that system tests rely on can fail.
func TestAReaderThatChangesAValueIsFound(t *testing.T) {
	b, data := &Bus{records: NewRecords()}, []byte(`{"id":"j","spec":{"command":["true"]}}`)
	shared, err := Decode[train.Job](b, data)
	if err = errors.Join(err, unchanged(shared, data)); err != nil {
		t.Fatal(err)
	}
	shared.Spec.Command[0] = "false"
	if err := unchanged(shared, data); !errors.Is(err, errChanged) {
		t.Errorf("changed to %v: %v", shared.Spec.Command, err)
	}
}
