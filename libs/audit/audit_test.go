package audit

import (
	"log/slog"
	"testing"
	"time"
)

// A person who asks without end for what he may not do has one refusal in a second stored, which counts the others. The
// refusals of other people are stored meanwhile.
func TestRefusalsAreBoundedByPerson(t *testing.T) {
	now := time.Unix(0, 0)
	s := New(nil, slog.Default(), func() time.Time { return now })
	for i := range perMinute + 50 {
		if missed, stored := s.turn("ann"); stored != (i < perMinute) || missed != 0 {
			t.Fatalf("refusal %d: %v, %d", i, stored, missed)
		}
	}
	if missed, stored := s.turn("bob"); !stored || missed != 0 {
		t.Errorf("another person's: %v, %d missed", stored, missed)
	}
	now = now.Add(time.Second)
	if missed, stored := s.turn("ann"); !stored || missed != 50 {
		t.Errorf("a second later: %v, %d missed", stored, missed)
	}
	if _, stored := s.turn("ann"); stored {
		t.Error("two in one second")
	}
}
