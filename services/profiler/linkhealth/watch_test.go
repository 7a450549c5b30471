package linkhealth

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// mesh is some nodes; each probes all others, over a link out of itself and a link into the other.
type mesh struct {
	*Watch
	nodes []train.NodeID
	flows []train.Flow
}

func newTriangle() *mesh { return newMesh("a", "b", "c") }

func newMesh(nodes ...train.NodeID) *mesh {
	w := &mesh{Watch: New(), nodes: nodes}
	for _, from := range nodes {
		list := train.Pinglist{}
		for _, to := range nodes {
			if from != to {
				list.Probes = append(list.Probes, train.Flow{
					From: from, To: to, Source: string(from) + ":1", Target: string(to) + ":2", Links: []string{"out-" + string(from), "in-" + string(to)},
				})
			}
		}
		w.flows = append(w.flows, list.Probes...)
		w.Use(from, &list)
	}
	return w
}

// slot makes a slot reported and judged.
func (w *mesh) slot(number int64, bad string, lost int, silent ...train.NodeID) []Transition {
	w.report(number, bad, lost, silent...)
	return w.Judge(number, begin(number))
}

// report makes all nodes but the silent ones report a slot in which each flow sent 100 probes and a link lost some
// of them.
func (w *mesh) report(number int64, bad string, lost int, silent ...train.NodeID) {
	for _, node := range w.nodes {
		c := event.ProbesCounted{Slot: number}
		for _, f := range w.flows {
			if f.From == node {
				c.Sent = append(c.Sent, train.SentProbes{Flow: f.ID(), Sent: 100})
			}
			if f.To == node {
				n := 100
				if slices.Contains(f.Links, bad) {
					n -= lost
				}
				c.Received = append(c.Received, train.ReceivedProbes{Flow: f.ID(), Count: n})
			}
		}
		if !slices.Contains(silent, node) {
			w.Counted(node, c, begin(number))
		}
	}
}

// begin is when a slot begins.
func begin(slot int64) time.Time { return time.Unix(slot*slotSeconds, 0).UTC() }

func describe(transitions []Transition) string {
	words := ""
	for _, t := range transitions {
		words += fmt.Sprintf("%s degraded=%v changed=%v loss=%.2f;", t.Link.ID, t.Link.Degraded, t.Changed, t.Link.Loss)
	}
	return words
}

func TestALinkIsDegradedAfterTwoWindowsAndRecoversLater(t *testing.T) {
	w := newTriangle()
	slot := int64(100)
	next := func(bad string, lost int) string {
		slot++
		return describe(w.slot(slot, bad, lost))
	}
	for range 5 {
		if got := next("", 0); got != "" {
			t.Fatalf("in quiet: %s", got)
		}
	}
	if got := next("in-b", 30); got != "" {
		t.Errorf("after one window: %s", got)
	}
	if got := next("in-b", 30); got != "in-b degraded=true changed=true loss=0.20;" {
		t.Errorf("after two: %s", got)
	}
	if got := next("in-b", 30); got != "in-b degraded=true changed=false loss=0.30;" {
		t.Errorf("after three: %s", got)
	}
	recovered := 0
	for range 10 {
		if got := next("", 0); got == "in-b degraded=false changed=true loss=0.10;" {
			recovered++
		}
	}
	if recovered != 1 {
		t.Errorf("it recovered %d times", recovered)
	}
}

func TestALinkIsReportedWithTheLinksOnTheSamePaths(t *testing.T) {
	w := newTriangle()
	w.Use("c", nil)
	w.flows = slices.DeleteFunc(w.flows, func(f train.Flow) bool { return f.From == "c" || f.To == "c" })
	w.Use("a", &train.Pinglist{Probes: w.flows[:1]})
	w.Use("b", &train.Pinglist{Probes: w.flows[1:]})
	var last []Transition
	for slot := range int64(4) {
		last = w.slot(100+slot, "in-b", 30)
	}
	if len(last) != 1 || last[0].Link.ID != "out-a" || !last[0].Link.Degraded || !slices.Equal(last[0].Link.Alike, []string{"in-b"}) {
		t.Errorf("got %+v", last)
	}
}

func TestOneBadSlotMakesNoLinkDegraded(t *testing.T) {
	w := newTriangle()
	for slot := range int64(20) {
		bad := ""
		if slot%6 == 5 {
			bad = "in-b"
		}
		if got := describe(w.slot(100+slot, bad, 90)); got != "" {
			t.Fatalf("slot %d: %s", slot, got)
		}
	}
}

func TestAClockThatIsBehindIsNoLoss(t *testing.T) {
	judged := func(late bool) string {
		w, all := newTriangle(), ""
		for slot := int64(100); slot < 110; slot++ {
			for _, node := range []train.NodeID{"a", "b", "c"} {
				c := event.ProbesCounted{Slot: slot, Sent: []train.SentProbes{}, Received: []train.ReceivedProbes{}}
				for _, f := range w.flows {
					id := f.ID()
					if f.From == node {
						c.Sent = append(c.Sent, train.SentProbes{Flow: id, Sent: 100})
					}
					if f.To != node {
						continue
					}
					n := 100
					if f.From == "a" { // the last probes of each slot arrive after it was reported
						if n = 60; late && slot > 100 {
							c.Late = append(c.Late, train.LateProbes{Flow: id, BehindSeconds: 6})
						}
					}
					c.Received = append(c.Received, train.ReceivedProbes{Flow: id, Count: n})
				}
				w.Counted(node, c, begin(slot))
			}
			all += describe(w.Judge(slot, begin(slot)))
		}
		return all
	}
	if got := judged(true); got != "" {
		t.Errorf("with a clock that is behind: %s", got)
	}
	if got := judged(false); !strings.HasPrefix(got, "out-a degraded=true") {
		t.Errorf("with a link that loses packets: %s", got)
	}
}

func TestAnAgentThatIsGoneIsNoLoss(t *testing.T) {
	w := newTriangle()
	for slot := range int64(10) {
		if got := describe(w.slot(100+slot, "", 0, "b")); got != "" {
			t.Fatalf("%s", got)
		}
	}
	if w.Complete(109) {
		t.Error("a slot is complete without one of the nodes")
	}
	w.Use("b", nil)
	if !w.Complete(109) || w.Idle() {
		t.Error("a node without a list is waited for")
	}
}

// caughtUp returns which slots are judged at a time.
func (w *mesh) caughtUp(now time.Time) (slots []int64) {
	for _, slot, judged := w.Next(now); judged; _, slot, judged = w.Next(now) {
		slots = append(slots, slot)
	}
	return slots
}

func TestSlotsBeforeTheFirstListAreNotJudged(t *testing.T) {
	w := newTriangle()
	lists := w.lists
	for _, first := range []int64{100, 1000} { // the second time after hours in which nobody probed
		w.lists = map[train.NodeID]train.Pinglist{}
		for slot := first - 3; slot <= first; slot++ {
			if got := w.caughtUp(begin(slot)); got != nil {
				t.Errorf("without lists %v was judged", got)
			}
		}
		w.lists = lists
		if got := w.caughtUp(begin(first + 1).Add(reportedBy)); !slices.Equal(got, []int64{first}) {
			t.Errorf("judged %v, want %d", got, first)
		}
	}
}

func TestAfterAGapTheLastWindowsAreJudged(t *testing.T) {
	w := newTriangle()
	w.caughtUp(begin(100))
	w.caughtUp(begin(101).Add(reportedBy))
	if got := w.caughtUp(begin(1000).Add(reportedBy)); !slices.Equal(got, []int64{995, 996, 997, 998, 999}) {
		t.Errorf("judged %v", got)
	}
}

// A clock that is set back makes slots come twice. Those of the second time are judged when they are reported, by
// their own reports only.
func TestAfterTheClockWasSetBackSlotsAreJudgedAgain(t *testing.T) {
	for back, want := range map[int64][]int64{
		1: {1005, 1006, 1007}, 2: {1003, 1004, 1005, 1006, 1007}, 5: {1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007}, 360: {645, 646, 647, 648, 649, 650, 651, 652},
	} {
		w := newTriangle()
		w.caughtUp(begin(1000))
		for slot := int64(1000); slot < 1005; slot++ {
			w.report(slot, "", 0)
			if got := w.caughtUp(begin(slot + 1)); !slices.Equal(got, []int64{slot}) {
				t.Fatalf("judged %v before the leap, want %d", got, slot)
			}
		}
		w.report(1005, "in-b", 90) // from nodes whose clocks are right, or wrong in the same way
		first := 1005 - back
		got := w.caughtUp(begin(first))
		if back > 1 && len(w.reports) > 0 {
			t.Errorf("%d slots back: kept %v", back, w.reports)
		}
		for slot := first; slot < first+8 && slot < 1008; slot++ {
			w.report(slot, "", 0)
			got = append(got, w.caughtUp(begin(slot+1))...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d slots back: judged %v, want %v", back, got, want)
		}
	}
}

func TestASlotIsCompleteWithAllThatIsEverReported(t *testing.T) {
	w := newTriangle()
	w.Use("b", nil)
	w.Use("c", nil)
	if w.Complete(100) {
		t.Error("a slot is complete without a report")
	}
	w.Counted("a", event.ProbesCounted{Slot: 100, Sent: []train.SentProbes{}}, begin(100))
	if !w.Complete(100) {
		t.Error("what a node received is waited for, though it has never reported any")
	}
	w.Counted("a", event.ProbesCounted{Slot: 100, Received: []train.ReceivedProbes{}}, begin(100))
	w.Counted("a", event.ProbesCounted{Slot: 101, Sent: []train.SentProbes{}}, begin(101))
	if !w.Complete(100) || w.Complete(101) {
		t.Errorf("complete: %v with both halves, %v with one of them", w.Complete(100), w.Complete(101))
	}
	w.Counted("a", event.ProbesCounted{Slot: 102, Stalled: true}, begin(102))
	if !w.Complete(102) {
		t.Error("more is waited for from an agent that did not run")
	}
}

func TestReportsThatAreNeverJudgedAreNotKept(t *testing.T) {
	w := newTriangle()
	for slot, node := range map[int64]train.NodeID{100: "stranger", 107: "a", 1 << 40: "a"} {
		w.Counted(node, event.ProbesCounted{Slot: slot}, begin(100))
	}
	if len(w.reports) != 0 {
		t.Errorf("kept %v", w.reports)
	}
	w.Counted("a", event.ProbesCounted{Slot: 106}, begin(100))
	if len(w.reports) != 1 {
		t.Error("an agent whose clock is a minute ahead is ignored")
	}
}

func TestALinkWithoutPathsIsForgotten(t *testing.T) {
	w := newTriangle()
	w.Recall(train.Link{ID: "gone", Degraded: true, Loss: 0.5})
	w.Recall(train.Link{ID: "in-a", Degraded: true, Loss: 0.4})
	var all string
	for slot := range int64(6) {
		all += describe(w.slot(100+slot, "in-a", 40))
	}
	want := "gone degraded=false changed=true loss=0.50;"
	if n := strings.Count(all, want); n != 1 || strings.Count(all, "in-a degraded=true changed=false") != 6 {
		t.Errorf("got %s", all)
	}
}

func TestTheBackgroundIsLearnedFromPathsWithoutBlamedLinks(t *testing.T) {
	w := newTriangle()
	if got := w.background(); got != mostBackground {
		t.Errorf("before the first probe %g", got)
	}
	slot := int64(100)
	for range 400 {
		slot++
		w.slot(slot, "", 0)
	}
	clean := w.background()
	for range 400 {
		slot++
		w.slot(slot, "in-b", 30)
	}
	if got := w.background(); clean > 5e-5 || got > 2*clean {
		t.Errorf("%g without losses, %g after those of a link", clean, got)
	}
}

// What another link loses on paths that it shares with one is no evidence that this one lost packets for long.
func TestABurstBesideALossyLinkMakesNoLinkDegraded(t *testing.T) {
	w := newTriangle()
	for slot := range int64(12) {
		got, _ := w.reportAll(100+slot, func(_ train.NodeID, c *event.ProbesCounted) bool {
			for i, r := range c.Received {
				f := w.flows[slices.IndexFunc(w.flows, func(f train.Flow) bool { return f.ID() == r.Flow })]
				if slices.Contains(f.Links, "in-b") {
					c.Received[i].Count -= 30
				}
				if slices.Contains(f.Links, "out-c") && slot == 8 {
					c.Received[i].Count /= 10
				}
			}
			return true
		})
		if strings.Contains(got, "out-c") || slot > 3 && !strings.Contains(got, "in-b degraded=true") {
			t.Errorf("slot %d: %s", slot, got)
		}
	}
}
