package nettrial

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/netprobe"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
	"github.com/switchyard-dl/switchyard/services/profiler/linkhealth"
)

// lab is a live network, judged window by window: 8 nodes below 4 leaves and 2 spines, probed as the planner plans it.
// Ports choose spines at random.
type lab struct {
	lists map[train.NodeID]train.Pinglist
	links []string
}

func newLab() *lab {
	s := pinglist.Settings{Alpha: 3, Beta: 2, Peers: 16, Ports: 4, FirstPort: 28400, Classes: []int{0}}
	rnd := rand.New(rand.NewPCG(8, 8))
	var nodes []train.Node
	for h := range 8 {
		nodes = append(nodes, train.Node{ID: train.NodeID(fmt.Sprintf("h%d", h)), Probes: []string{fmt.Sprintf("h%d:1", h)}})
	}
	flows := pinglist.Make(nodes, nil, nil, s).Of
	var paths []train.Paths
	for _, n := range nodes {
		p := train.Paths{Node: n.ID}
		for _, f := range flows[n.ID].Trace {
			from, to, spine := (f.From[1]-'0')/2, (f.To[1]-'0')/2, rnd.IntN(2)
			hops := []string{"leaf-of-" + string(f.From)}
			if from != to {
				hops = append(hops, fmt.Sprintf("spine%d-of-leaf%d", spine, from), fmt.Sprintf("leaf%d-of-spine%d", to, spine))
			}
			p.Paths = append(p.Paths, train.Path{Flow: f, Complete: true, Hops: hops})
		}
		paths = append(paths, p)
	}
	made := pinglist.Make(nodes, paths, nil, s)
	l := &lab{lists: made.Of}
	for link := range made.Crossed {
		l.links = append(l.links, link)
	}
	slices.Sort(l.links)
	return l
}

// watched is a live network over time: what its agents probe next, and what has been judged.
type watched struct {
	*lab
	watch     *linkhealth.Watch
	schedules map[train.NodeID]*netprobe.Schedule
	ids       map[train.NodeID][]uint32
	rnd       *rand.Rand
}

func (l *lab) watched(rnd *rand.Rand) *watched {
	w := &watched{l, linkhealth.New(), map[train.NodeID]*netprobe.Schedule{}, map[train.NodeID][]uint32{}, rnd}
	for node, list := range l.lists {
		w.watch.Use(node, &list)
		w.schedules[node] = netprobe.NewSchedule(list.Probes)
		for _, f := range list.Probes {
			w.ids[node] = append(w.ids[node], f.ID())
		}
	}
	return w
}

// slot sends probes from every node for a slot, drops the lost part on each link, and judges the counts of both ends.
func (w *watched) slot(number int64, rate int, loss map[string]float64) []linkhealth.Transition {
	seconds := int64(train.ProbeSlot / time.Second)
	begin, end := time.Unix(number*seconds, 0), time.Unix((number+1)*seconds, 0)
	sent, came := map[uint32]int{}, map[uint32]int{}
	probe := func(id uint32, links []string) (arrived bool) {
		pass := 1.0
		for _, link := range links {
			pass *= 1 - loss[link]
		}
		sent[id]++
		if arrived = w.rnd.Float64() < pass; arrived {
			came[id]++
		}
		return arrived
	}
	for n := range int(seconds) * rate {
		now := begin.Add(time.Duration(n) * time.Second / time.Duration(rate))
		for h := range len(w.lists) {
			w.tick(train.NodeID(fmt.Sprintf("h%d", h)), now, probe)
		}
	}
	for node, c := range w.counts(number, sent, came) {
		w.watch.Counted(node, *c, end)
	}
	return w.watch.Judge(number, end)
}

// tick sends what a node sends at a time.
func (w *watched) tick(node train.NodeID, now time.Time, probe func(uint32, []string) bool) {
	flows, ids, schedule := w.lists[node].Probes, w.ids[node], w.schedules[node]
	turn, extra := schedule.Next(now)
	if !probe(ids[turn], flows[turn].Links) {
		schedule.Lost(ids[turn], now)
	}
	for _, i := range extra {
		if probe(ids[i], flows[i].Links) && schedule.Suspects(now) {
			w.schedules[flows[i].To].Told(now)
		}
	}
}

// counts are what the agents report of a slot.
func (l *lab) counts(number int64, sent, came map[uint32]int) map[train.NodeID]*event.ProbesCounted {
	counts := map[train.NodeID]*event.ProbesCounted{}
	for node := range l.lists {
		counts[node] = &event.ProbesCounted{Slot: number, Sent: []train.SentProbes{}, Received: []train.ReceivedProbes{}}
	}
	for _, list := range l.lists {
		for _, f := range list.Probes {
			id := f.ID()
			counts[f.From].Sent = append(counts[f.From].Sent, train.SentProbes{Flow: id, Sent: sent[id]})
			counts[f.To].Received = append(counts[f.To].Received, train.ReceivedProbes{Flow: id, Count: came[id]})
		}
	}
	return counts
}

// named drops packets on links from the middle of a slot on, ten minutes after the start, and returns the links that
// are named within a minute, and within two.
func (l *lab) named(rate int, loss map[string]float64, rnd *rand.Rand) (soon, later []string) {
	const quiet = 60
	w := l.watched(rnd)
	for n := range int64(quiet + 12) {
		now := loss
		switch {
		case n < quiet:
			now = nil
		case n == quiet:
			now = map[string]float64{}
			for link, part := range loss {
				now[link] = part / 2
			}
		}
		for _, turn := range w.slot(1000+n, rate, now) {
			if turn.Changed && turn.Link.Degraded {
				later = append(later, turn.Link.ID)
				if n <= quiet+5 { // 55 s after the first lost packet, and the time of reports
					soon = append(soon, turn.Link.ID)
				}
			}
		}
	}
	slices.Sort(soon)
	slices.Sort(later)
	return soon, later
}

// draw chooses links that lose these parts.
func (l *lab) draw(parts []float64, rnd *rand.Rand) (loss map[string]float64, want []string) {
	loss = map[string]float64{}
	for i, at := range rnd.Perm(len(l.links))[:len(parts)] {
		loss[l.links[at]], want = parts[i], append(want, l.links[at])
	}
	slices.Sort(want)
	return loss, want
}

func TestLossyLinksAreNamedWithinAMinute(t *testing.T) {
	l, rnd := newLab(), rand.New(rand.NewPCG(1, 1))
	for _, parts := range [][]float64{{0.01}, {0.02}, {0.05}, {0.2}, {1}, {0.01, 0.2}, {0.05, 0.05}, {0.02, 1}, {0.05, 0.2}, {1, 1}} {
		for range 4 {
			loss, want := l.draw(parts, rnd)
			if got, _ := l.named(40, loss, rnd); !slices.Equal(got, want) {
				t.Errorf("%v: named %v", loss, got)
			}
		}
	}
}

func TestAHealthyNetworkIsNotAccused(t *testing.T) {
	l := newLab()
	w := l.watched(rand.New(rand.NewPCG(2, 2)))
	background := map[string]float64{}
	for _, link := range l.links {
		background[link] = 2e-5 // nearly the highest loss that counts as healthy, on paths of four links
	}
	for n := range int64(3000) {
		for _, turn := range w.slot(1000+n, 10, background) {
			t.Fatalf("slot %d: %+v", n, turn)
		}
	}
}

// BenchmarkNaming reports how many of 200 lossy links are named within a minute and within two, and how often a healthy
// link is named, by the probes that each node sends in a second.
func BenchmarkNaming(b *testing.B) {
	l := newLab()
	for _, rate := range []int{10, 20, 40, 80} {
		for _, part := range []float64{0.01, 0.02, 0.05} {
			b.Run(fmt.Sprintf("rate=%d/loss=%g", rate, part), func(b *testing.B) {
				for b.Loop() {
					l.tally(b, rate, part)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func (l *lab) tally(b *testing.B, rate int, part float64) {
	const runs = 200
	rnd := rand.New(rand.NewPCG(3, 3))
	soon, all, wrong := 0, 0, 0
	for range runs {
		loss, want := l.draw([]float64{part}, rnd)
		first, named := l.named(rate, loss, rnd)
		if slices.Equal(first, want) {
			soon++
		}
		switch {
		case slices.Equal(named, want):
			all++
		case len(named) > 0:
			wrong++
		}
	}
	for unit, n := range map[string]int{"%in60s": soon, "%in120s": all, "%wrong": wrong} {
		b.ReportMetric(100*float64(n)/runs, unit)
	}
}
