package netprobe

import (
	"fmt"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func scheduled() (*Schedule, []train.Flow) {
	flows := []train.Flow{
		{From: "a", To: "b", Source: "a:1", Target: "b:1", Links: []string{"from-a", "to-b"}},
		{From: "a", To: "c", Source: "a:1", Target: "c:1", Links: []string{"from-a", "up", "down", "to-c"}},
		{From: "a", To: "d", Source: "a:1", Target: "d:1"},
	}
	return NewSchedule(flows), flows
}

// rounds counts what is sent over each flow, in the turns of a schedule and beside them.
func rounds(s *Schedule, n int, now time.Time) (turns, more [3]int) {
	for range n {
		turn, extra := s.Next(now)
		turns[turn]++
		for _, i := range extra {
			more[i]++
		}
	}
	return turns, more
}

func TestAFlowHasATurnForEachOfItsLinks(t *testing.T) {
	s, _ := scheduled()
	if turns, more := rounds(s, 70, time.Unix(1000, 0)); turns != [3]int{20, 40, 10} || more != [3]int{} {
		t.Errorf("%v, extra %v", turns, more)
	}
}

// TestALossBringsMoreProbes: for a minute, over all flows; after that the flow may lose what it wants for a while, so
// that the rate is low in the mean.
func TestALossBringsMoreProbes(t *testing.T) {
	s, flows := scheduled()
	start := time.Unix(1000, 0)
	fast := 0
	for second := range 480 { // two periods
		now := start.Add(time.Duration(second) * time.Second)
		if first := s.Lost(flows[1].ID(), now); first != (second%240 == 0) {
			t.Fatalf("second %d: suspected anew: %v", second, first)
		}
		if _, more := rounds(s, 7, now); more != [3]int{} {
			fast++
			if more != [3]int{2 * extraProbes, 4 * extraProbes, extraProbes} {
				t.Fatalf("second %d: extra %v", second, more)
			}
		}
	}
	if fast != 120 {
		t.Errorf("%d seconds of 480 had more probes", fast)
	}
}

func TestAnAgentThatIsToldSendsMoreAndTellsNobody(t *testing.T) {
	s, _ := scheduled()
	now := time.Unix(1000, 0)
	s.Told(now)
	if _, more := rounds(s, 7, now.Add(toldFor-1)); more == [3]int{} {
		t.Error("it sends no more")
	}
	if s.Suspects(now) {
		t.Error("it suspects a flow itself")
	}
	if _, more := rounds(s, 7, now.Add(toldFor)); more != [3]int{} {
		t.Errorf("it goes on: %v", more)
	}
}

// TestALossIsLookedInto: a flow whose answers do not come makes the agent and its partner send small probes that
// nobody answers, but both count.
func TestALossIsLookedInto(t *testing.T) {
	a, b := open(t, "127.0.0.1:0"), open(t, "127.0.0.1:0")
	lossy := flow(a, b, 0)
	use(t, a, b, train.Pinglist{Key: []byte("k"), Probes: []train.Flow{lossy}})
	a.mu.Lock()
	a.schedule.Lost(lossy.ID(), time.Now())
	a.mu.Unlock()
	start(t, a, b)
	until(t, "probes that ask for no answer have arrived", func() bool {
		_, acked, _ := totals(a)
		_, _, received := totals(b)
		return received > 50 && acked < received/2
	})
	until(t, fmt.Sprintf("%s is told", b.config.Node), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return !b.schedule.told.IsZero()
	})
}
