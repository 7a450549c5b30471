package audit

import (
	"log/slog"
	"testing"
	"time"
)

// A person who asks without end for what he may not do has one refusal in a second stored, which counts the others.
func TestRefusalsAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	s := New(nil, slog.Default(), func() time.Time { return now })
	for i := range atOnce + 50 {
		if missed, stored := s.turn(); stored != (i < atOnce) || missed != 0 {
			t.Fatalf("refusal %d: %v, %d", i, stored, missed)
		}
	}
	now = now.Add(every)
	if missed, stored := s.turn(); !stored || missed != 50 {
		t.Errorf("a second later: %v, %d missed", stored, missed)
	}
	if _, stored := s.turn(); stored {
		t.Error("two in one second")
	}
}
