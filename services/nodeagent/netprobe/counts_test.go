package netprobe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestCountsHaveTheTimesOfProbes(t *testing.T) {
	c, at := counts{}, time.Unix(1000, 0)
	for i := range 10 {
		c.at(at).left(7)
		c.at(at).acked(7, time.Duration(10-i)*time.Millisecond)
	}
	c.at(at).left(8)
	// The clock of the sender is ahead.
	for _, took := range []time.Duration{3 * time.Millisecond, -2 * time.Millisecond, 5 * time.Millisecond} {
		c.at(at).arrived(9, took)
	}
	want := event.ProbesCounted{
		Slot: 100, Sent: []train.SentProbes{{Flow: 7, Sent: 10, Acked: 10, RTTSeconds: 0.005, RTTHighSeconds: 0.009}, {Flow: 8, Sent: 1}},
		Received: []train.ReceivedProbes{{Flow: 9, Count: 3, DelaySeconds: 0.003}},
	}
	if d := cmp.Diff(want, c.take(100)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
