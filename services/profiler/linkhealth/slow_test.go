package linkhealth

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// weather describes a slot of a mesh: delays of links, and how far clocks of nodes are ahead, in seconds.
type weather struct {
	delay map[string]float64
	ahead map[train.NodeID]float64
}

const usualTrip = 200e-6

// timedSlot makes all nodes report a slot without losses.
func (w *mesh) timedSlot(number int64, is weather, dice *rand.Rand) string {
	way := func(from, to train.NodeID) float64 {
		return usualTrip/2 + is.delay["out-"+string(from)] + is.delay["in-"+string(to)] + 20e-6*dice.Float64()
	}
	for _, node := range w.nodes {
		c := event.ProbesCounted{Slot: number, Sent: []train.SentProbes{}, Received: []train.ReceivedProbes{}}
		for _, f := range w.flows {
			there, back := way(f.From, f.To), way(f.To, f.From)
			if f.From == node {
				s := train.SentProbes{Flow: f.ID(), Sent: 5, Acked: 5, RTTSeconds: there + back}
				if there+back > train.ProbeTimeout.Seconds() {
					s.Acked, s.RTTSeconds = 0, 0
				}
				c.Sent = append(c.Sent, s)
			}
			if f.To == node {
				c.Received = append(c.Received, train.ReceivedProbes{Flow: f.ID(), Count: 5, DelaySeconds: there + is.ahead[f.To] - is.ahead[f.From]})
			}
		}
		w.Counted(node, c, begin(number))
	}
	words := ""
	for _, transition := range w.Judge(number, begin(number)) {
		if transition.Changed {
			l := transition.Link
			words += fmt.Sprintf("%d: %s %s degraded=%v %.0f ms;", number, l.ID, l.Kind, l.Degraded, 1000*l.DelaySeconds)
		}
	}
	return words
}

// play goes through the weather slot by slot and returns the transitions.
func play(w *mesh, from int64, slots int, is weather, dice *rand.Rand) string {
	all := ""
	for i := range slots {
		all += w.timedSlot(from+int64(i), is, dice)
	}
	return all
}

func TestASlowLinkIsNamedInItsDirection(t *testing.T) {
	for _, link := range []string{"out-a", "in-a", "out-c", "in-b"} {
		for _, delay := range []float64{0.003, 0.040, 0.300} {
			w, dice := newTriangle(), rand.New(rand.NewPCG(1, 2))
			if got := play(w, 100, 12, weather{}, dice); got != "" {
				t.Errorf("in quiet: %s", got)
			}
			slow := weather{delay: map[string]float64{link: delay}}
			got := play(w, 112, 40, slow, dice)
			// Two slots make a window, and two windows a degraded link.
			if want := fmt.Sprintf("114: %s slow degraded=true %.0f ms;", link, 1000*min(delay, 0.1)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got := play(w, 152, 12, weather{}, dice); !strings.Contains(got, link+" slow degraded=false") || strings.Count(got, ";") != 1 {
				t.Errorf("after %s was slow: %s", link, got)
			}
		}
	}
}

func TestOneSlowSlotIsNoSlowLink(t *testing.T) {
	w, dice := newTriangle(), rand.New(rand.NewPCG(1, 2))
	play(w, 100, 12, weather{}, dice)
	for slot := int64(112); slot < 160; slot++ {
		is := weather{}
		if slot%5 == 0 {
			is.delay = map[string]float64{"in-b": 0.02}
		}
		if got := w.timedSlot(slot, is, dice); got != "" {
			t.Fatal(got)
		}
	}
}

func TestAClockThatIsSetIsNoSlowLink(t *testing.T) {
	for _, ahead := range []float64{0.05, -0.05} {
		w, dice := newTriangle(), rand.New(rand.NewPCG(1, 2))
		play(w, 100, 12, weather{}, dice)
		if got := play(w, 112, 40, weather{ahead: map[train.NodeID]float64{"a": ahead}}, dice); got != "" {
			t.Errorf("a clock that goes %v s: %s", ahead, got)
		}
	}
}

// A way back that has become longer for good must not leave only the clocks to decide whether the way there is slow.
func TestAClockThatIsSetWhileTheWayBackIsLongIsNoSlowLink(t *testing.T) {
	w, dice := newTriangle(), rand.New(rand.NewPCG(1, 2))
	play(w, 100, 12, weather{}, dice)
	long := weather{delay: map[string]float64{"in-a": 0.04}}
	if got := play(w, 112, 40, long, dice); got != "114: in-a slow degraded=true 40 ms;" {
		t.Errorf("got %s", got)
	}
	long.ahead = map[train.NodeID]float64{"a": -0.05}
	if got := play(w, 152, 40, long, dice); strings.Contains(got, "out-a") {
		t.Errorf("a clock that goes behind: %s", got)
	}
}

// Where most flows are well, a link that is slow from the start is named, and known again after a restart. Clocks that
// differ hide it or divide the wait between its directions, and accuse nobody else.
func TestALinkThatIsSlowFromTheStartIsNamed(t *testing.T) {
	nodes := []train.NodeID{"a", "b", "c", "d", "e", "f"}
	dice := rand.New(rand.NewPCG(1, 2))
	for _, link := range []string{"out-a", "in-d"} {
		w, slow := newMesh(nodes...), weather{delay: map[string]float64{link: 0.012}}
		got := play(w, 100, 40, slow, dice)
		if want := fmt.Sprintf("108: %s slow degraded=true 12 ms;", link); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		after := newMesh(nodes...)
		for _, l := range w.published {
			after.Recall(l)
		}
		if got := play(after, 140, 40, slow, dice); got != "" {
			t.Errorf("after a restart: %s", got)
		}
		if got := play(after, 180, 40, weather{}, dice); !strings.Contains(got, link+" slow degraded=false") || strings.Count(got, ";") != 1 {
			t.Errorf("after %s was slow: %s", link, got)
		}
		if got := play(after, 220, 10, slow, dice); !strings.Contains(got, link+" slow degraded=true 12 ms") {
			t.Errorf("once more: %s", got)
		}
	}
	for _, ahead := range []float64{0.006, -0.006, 0.05, -0.05} {
		is := weather{delay: map[string]float64{"out-a": 0.012}, ahead: map[train.NodeID]float64{"a": ahead, "c": -ahead}}
		got := play(newMesh(nodes...), 100, 40, is, dice)
		if others := strings.NewReplacer("out-a", "", "in-a", "").Replace(got); strings.Contains(others, "out-") || strings.Contains(others, "in-") {
			t.Errorf("clocks that go %v s apart: %s", ahead, got)
		}
	}
}

// A clock that was wrong from the start is no slow link, and no more are far and near nodes.
func TestDistancesAndClocksAreNoSlowLinks(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	w := newMesh("a", "b", "c", "d", "e", "f")
	is := weather{ahead: map[train.NodeID]float64{"a": 0.05, "b": -0.02}, delay: map[string]float64{"in-a": 0.0004, "in-b": 0.0008}}
	if got := play(w, 100, 40, is, dice); got != "" {
		t.Errorf("wrong clocks: %s", got)
	}
	far := map[string]float64{"out-a": 0.02, "out-b": 0.02, "out-c": 0.02}
	if got := play(newMesh("a", "b", "c", "d", "e", "f"), 100, 40, weather{delay: far}, dice); got != "" {
		t.Errorf("a half of the flows is from far: %s", got)
	}
}

func TestALossyLinkIsNotReportedAsSlow(t *testing.T) {
	w := newTriangle()
	w.Recall(train.Link{ID: "in-b", Kind: train.LinkIsSlow, Degraded: true, DelaySeconds: 0.01})
	reported := ""
	for slot := range int64(12) {
		for _, transition := range w.slot(100+slot, "in-b", 40) {
			if transition.Changed {
				reported += fmt.Sprintf("%s %s degraded=%v;", transition.Link.ID, transition.Link.Kind, transition.Link.Degraded)
			}
		}
	}
	// It was slow, then loses packets. That it is slow no more is known once the baseline is learned again, and is no
	// transition.
	if want := "in-b loss degraded=true;"; reported != want {
		t.Errorf("got %s, want %s", reported, want)
	}
}

func TestWhatIsUsualIsLearnedAnewOnAnotherWay(t *testing.T) {
	w, dice := newTriangle(), rand.New(rand.NewPCG(1, 2))
	play(w, 100, 12, weather{}, dice)
	for i := range w.flows { // all paths lead over a satellite now
		w.flows[i].Links = append([]string{"satellite"}, w.flows[i].Links...)
	}
	for _, node := range []train.NodeID{"a", "b", "c"} {
		list := train.Pinglist{}
		for _, f := range w.flows {
			if f.From == node {
				list.Probes = append(list.Probes, f)
			}
		}
		w.Use(node, &list)
	}
	longer := map[string]float64{"out-a": 0.03, "out-b": 0.03, "out-c": 0.03}
	if got := play(w, 112, 20, weather{delay: longer}, dice); got != "" {
		t.Errorf("got %s", got)
	}
	longer["in-c"] = 0.01
	if got := play(w, 132, 6, weather{delay: longer}, dice); !strings.Contains(got, "in-c slow degraded=true 10 ms") {
		t.Errorf("got %s", got)
	}
}

func TestAWindowShowsEachLink(t *testing.T) {
	w := newTriangle()
	for slot := range int64(4) {
		for _, node := range []train.NodeID{"a", "b", "c"} {
			c := event.ProbesCounted{Slot: 100 + slot, Sent: []train.SentProbes{}, Received: []train.ReceivedProbes{}}
			for _, f := range w.flows {
				n := 100
				if f.To == "b" {
					n = 90
				}
				if f.From == node {
					c.Sent = append(c.Sent, train.SentProbes{Flow: f.ID(), Sent: 100, Acked: n, RTTSeconds: 0.002, RTTHighSeconds: 0.003 + 0.001*float64(slot)})
				}
				if f.To == node {
					c.Received = append(c.Received, train.ReceivedProbes{Flow: f.ID(), Count: n})
				}
			}
			w.Counted(node, c, begin(100+slot))
		}
		w.Judge(100+slot, begin(100+slot))
	}
	shown := map[string]train.LinkWindow{}
	for _, l := range w.Links() {
		shown[l.ID] = l
	}
	want := map[string]train.LinkWindow{
		"in-b":  {ID: "in-b", State: train.LinkLoses, Sent: 600, Lost: 60, Loss: 0.1, RTTSeconds: 0.002, RTTHighSeconds: 0.006},
		"out-a": {ID: "out-a", State: train.LinkIsWell, Sent: 600, Lost: 30, RTTSeconds: 0.002, RTTHighSeconds: 0.006},
		"in-a":  {ID: "in-a", State: train.LinkIsWell, Sent: 600, RTTSeconds: 0.002, RTTHighSeconds: 0.006},
	}
	for id, l := range want {
		if shown[id] != l {
			t.Errorf("showed %+v, want %+v", shown[id], l)
		}
	}
	if len(shown) != 6 {
		t.Errorf("%d links", len(shown))
	}
}
