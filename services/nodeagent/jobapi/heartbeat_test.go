package jobapi

import (
	"slices"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
)

// While the bus is slow, each process has its newest heartbeat there, however many others there are.
func TestTheNewestHeartbeatOfEachProcessWaits(t *testing.T) {
	b := newBeats()
	const ranks = 1000
	for step := range 3 {
		for rank := range ranks {
			if replaced := b.put(process{"j", 1, rank}, event.Fact{Body: event.Stepped{Rank: rank, Step: step}}); replaced != (step > 0) {
				t.Fatalf("step %d of rank %d replaces an earlier one: %t", step, rank, replaced)
			}
		}
	}
	<-b.came
	var of []int
	for _, fact := range b.take() {
		s := fact.Body.(event.Stepped)
		if s.Step != 2 {
			t.Errorf("step %d of rank %d", s.Step, s.Rank)
		}
		of = append(of, s.Rank)
	}
	slices.Sort(of)
	if len(slices.Compact(of)) != ranks || len(b.take()) != 0 {
		t.Errorf("%d processes, want %d once", len(of), ranks)
	}
	if b.put(process{"j", 1, 0}, event.Fact{}) {
		t.Error("what was taken is replaced")
	}
}
