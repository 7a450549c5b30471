package admission

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Only the person whom the kernel has named to the service web is a user of the machine: no name in a message is.
func TestOnlyTheKernelNamesAUser(t *testing.T) {
	for _, c := range []struct {
		who  bus.Asker
		want string
	}{
		{bus.Asker{Role: "web", Person: "ann", Door: "socket"}, "ann"},
		{bus.Asker{Role: "web", Person: "ann", Door: "TCP"}, ""},
		{bus.Asker{Role: "web", Person: "ann"}, ""},
		{bus.Asker{Role: "admission", Person: "ann", Door: "socket"}, ""},
		{bus.Asker{Role: "user", Person: "ann", Door: "socket"}, ""},
		{bus.Asker{Person: "ann", Door: "socket"}, ""}, // a bus without accounts
	} {
		if got := fromSocket(c.who); got != c.want {
			t.Errorf("%+v: %q, want %q", c.who, got, c.want)
		}
	}
	for name, want := range map[string]int{"daemon": 1, "uid64001": 0, "": 0, "nobody-here": 0} {
		if got := machineUser(name); got != want {
			t.Errorf("%q is user %d, want %d", name, got, want)
		}
	}
}

// A job of an array has the user of the array if it is what the array says, and nothing else.
func TestAMemberIsWhatItsArraySays(t *testing.T) {
	array := train.Job{ID: "a", Spec: train.Spec{Name: "a", User: "ann", UID: 1001, Array: "0-2", Command: []string{"true"}, Env: map[string]string{"X": "1"}}}
	a, err := train.ParseArray(array.Spec.Array)
	if err != nil {
		t.Fatal(err)
	}
	member := array.Spec.Member("a", a, 1)
	if !isMember(array, member) {
		t.Error("a job of the array is none")
	}
	member.Command = []string{"false"}
	if isMember(array, member) {
		t.Error("a job with another command is one of the array")
	}
}

// A job of an array was submitted when its array says. A job of it that a person submits again has another id, and its
// own time.
func TestAJobThatIsSubmittedAgainHasItsOwnTime(t *testing.T) {
	stated := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	stored := stated.Add(time.Hour)
	for id, want := range map[train.JobID]time.Time{"a-1": stated, "again": stored} {
		m := bus.Message{Data: []byte(`{"name":"x","command":["true"],"array_member":{"array":"a","index":1,"count":2}}`), Time: stated, Stored: stored, Parsed: event.JobSubject(id, event.FactSubmitted)}
		if s := read(m); !s.at.Equal(want) || len(s.reasons) > 0 {
			t.Errorf("%s was submitted at %s, want %s (%v)", id, s.at, want, s.reasons)
		}
	}
}
