package pinglist

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func settings() Settings {
	return Settings{Alpha: 3, Beta: 1, Peers: 16, Ports: 4, FirstPort: 28400, Classes: []int{0, 10}, RackLabel: "rack"}
}

// nodes returns a number of nodes in racks of two.
func nodes(n int) []train.Node {
	var all []train.Node
	for i := range n {
		all = append(all, train.Node{
			ID: train.NodeID(fmt.Sprintf("n%d", i)), Labels: map[string]string{"rack": fmt.Sprintf("r%d", i/2)}, Probes: []string{fmt.Sprintf("10.0.0.%d:7070", i)},
		})
	}
	return all
}

// discovered are the paths of all flows of a list, by the port over one of two spines.
func discovered(l Lists) []train.Paths {
	var all []train.Paths
	for node, list := range l.Of {
		p := train.Paths{Node: node}
		for i, f := range list.Trace {
			p.Paths = append(p.Paths, train.Path{Flow: f, Complete: true, Hops: []string{"leaf-of-" + host(f.Source), fmt.Sprintf("spine%d-from-%s", i%2, host(f.Source)), "leaf-to-" + host(f.Target)}})
		}
		all = append(all, p)
	}
	return all
}

// covers counts the probed flows over each link, and all of them.
func covers(l Lists) (map[string]int, int) {
	counts, all := map[string]int{}, 0
	for _, list := range l.Of {
		for _, f := range list.Probes {
			all++
			for _, link := range f.Links {
				counts[link]++
			}
		}
	}
	return counts, all
}

func kept(l Lists) map[uint32]bool {
	flows := map[uint32]bool{}
	for _, list := range l.Of {
		for _, f := range list.Probes {
			flows[f.ID()] = true
		}
	}
	return flows
}

func TestEveryLinkIsCoveredAsOftenAsWasAsked(t *testing.T) {
	first := Make(nodes(8), nil, nil, settings())
	for name, l := range map[string]Lists{"logical": first, "discovered": Make(nodes(8), discovered(first), nil, settings())} {
		counts, flows := covers(l)
		for link := range l.Crossed {
			if counts[link] < 3 {
				t.Errorf("%s: %s is on %d probed paths", name, link, counts[link])
			}
		}
		if len(counts) != len(l.Crossed) || flows > 8*7*4 {
			t.Errorf("%s: %d links of %d are covered by %d flows", name, len(counts), len(l.Crossed), flows)
		}
	}
	if got := len(first.Crossed); got != 8+8+4*3 {
		t.Errorf("%d logical links: want those out of 8 nodes, into 8, and between 12 pairs of racks", got)
	}
}

func TestListsStayWhenNothingOrLittleChanges(t *testing.T) {
	first := Make(nodes(8), nil, nil, settings())
	before := kept(first)
	again := kept(Make(nodes(8), nil, before, settings()))
	if len(again) != len(before) {
		t.Errorf("%d flows, then %d", len(before), len(again))
	}
	stay := 0
	for f := range kept(Make(nodes(9), nil, before, settings())) {
		if before[f] {
			stay++
		}
	}
	if stay < len(before)*9/10 {
		t.Errorf("of %d flows %d stay when a node comes", len(before), stay)
	}
}

func TestNobodyProbesItselfOrANodeThatDoesNotAnswer(t *testing.T) {
	some := nodes(5)
	some[3].Probes = nil
	l := Make(some, nil, nil, settings())
	if len(l.Of) != 4 {
		t.Errorf("%d lists", len(l.Of))
	}
	for node, list := range l.Of {
		for _, f := range append(slices.Clone(list.Trace), list.Probes...) {
			if f.From != node || f.To == node || f.To == "n3" {
				t.Errorf("%s: %+v", node, f)
			}
		}
	}
}

func TestAddressesOfOneProtocolBelongTogether(t *testing.T) {
	some := []train.Node{
		{ID: "a", Probes: []string{"10.0.0.1:7070", "[fd00::1]:7070"}},
		{ID: "b", Probes: []string{"10.0.0.2:7070", "[fd00::2]:7071"}},
		{ID: "c", Probes: []string{"[fd00::3]:7070"}},
	}
	pairs := map[string]bool{}
	for _, f := range Make(some, nil, nil, settings()).Of["a"].Trace {
		pairs[f.Source+" > "+f.Target] = true
	}
	if !pairs["[fd00::1]:28400 > [fd00::2]:7071"] || !pairs["10.0.0.1:28403 > 10.0.0.2:7070"] || len(pairs) != 12 {
		t.Errorf("%v", pairs)
	}
}

func TestOffsetsReachNearAndFar(t *testing.T) {
	for _, c := range []struct {
		nodes, peers int
		want         []int
	}{{1, 4, nil}, {4, 16, []int{1, 2, 3}}, {101, 4, []int{1, 26, 51, 76}}} {
		if got := offsets(c.nodes, c.peers); !slices.Equal(got, c.want) {
			t.Errorf("%d nodes, %d peers: %v", c.nodes, c.peers, got)
		}
	}
}

func TestAnotherFlowTakesThePlaceOfOneWhosePortIsInUse(t *testing.T) {
	first := Make(nodes(8), nil, nil, settings())
	found := discovered(first)
	before := Make(nodes(8), found, nil, settings())
	busy := before.Of["n0"].Probes[0]
	for i := range found {
		for k, p := range found[i].Paths {
			if p.Flow.Source == busy.Source {
				found[i].Paths[k] = train.Path{Flow: p.Flow}
			}
		}
	}
	after := Make(nodes(8), found, kept(before), settings())
	for _, f := range after.Of["n0"].Probes {
		if f.Source == busy.Source {
			t.Errorf("%+v is still probed", f)
		}
	}
	counts, _ := covers(after)
	for _, link := range busy.Links {
		if counts[link] < 3 {
			t.Errorf("%s is on %d probed paths", link, counts[link])
		}
	}
}

// yard is a network of two spines that knows the addresses that discovered gives to one of them.
func yard(t *testing.T) *fabric.Names {
	t.Helper()
	text := "spines: [s0, s1]\nracks: [r0, r1, r2, r3]\nnodes:\n"
	for i := range 8 {
		text += fmt.Sprintf("  - {name: n%d, rack: r%d}\n", i, i/2)
	}
	topology, err := fabric.Read([]byte(text + "addresses: {s0: [10.9.0.0], s1: [10.9.0.1]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return topology.Names()
}

func TestLinksHaveTheNamesOfTheOperatorsTopology(t *testing.T) {
	s := settings()
	s.Network = yard(t)
	first := Make(nodes(9), nil, nil, s)
	// Out of 8 nodes and into them, 12 pairs of racks; the ninth node is not in the topology.
	for _, want := range []string{"n0=3Er0", "r0=3Er1", "r3=3En7", "from-n8", "to-n8"} {
		if _, crossed := first.Crossed[want]; !crossed {
			t.Errorf("nothing crosses %s", want)
		}
	}
	// Spines answer, leaves do not: their place in the path is enough.
	var found []train.Paths
	for _, list := range Make(nodes(8), nil, nil, s).Of {
		p := train.Paths{}
		for i, f := range list.Trace {
			path := train.Path{Flow: f, Complete: true, Hops: []string{""}}
			if f.From[1]/2 != f.To[1]/2 {
				path.Hops = []string{"", fmt.Sprintf("10.9.0.%d", i%2), ""}
			}
			p.Paths = append(p.Paths, path)
		}
		found = append(found, p)
	}
	after := Make(nodes(8), found, nil, s)
	for _, want := range []string{"n0=3Er0", "r0=3Es0", "s1=3Er3", "r3=3En7"} {
		if _, crossed := after.Crossed[want]; !crossed {
			t.Errorf("nothing crosses %s", want)
		}
	}
	if got := len(after.Crossed); got != 2*(8+4*2) {
		t.Errorf("%d links, want both directions of 8 to nodes and 8 to spines", got)
	}
}

// Nodes probe few others: the planner has to know of the rest, too, who crosses a link.
func TestALinkIsCrossedByPairsThatDoNotProbeEachOther(t *testing.T) {
	some := nodes(40)
	crosses := func(l Lists, link string, from, to int) bool {
		c := l.Crossed[link]
		return slices.Contains(c.From, some[from].ID) && slices.Contains(c.To, some[to].ID)
	}
	first := Make(some, nil, nil, settings())
	for name, links := range map[string][2]string{"logical": {"from-n0", "to-n7"}, "discovered": {"to-leaf-of-10-0-0-0", "to-10-0-0-7"}} {
		l := first
		if name == "discovered" {
			l = Make(some, discovered(first), nil, settings())
		}
		for other := range some {
			if other > 0 && !crosses(l, links[0], 0, other) || crosses(l, links[0], other, 0) {
				t.Errorf("%s: n0 to n%d over the link out of n0: %v", name, other, l.Crossed[links[0]])
			}
			if other != 7 && !crosses(l, links[1], other, 7) || crosses(l, links[1], 7, other) {
				t.Errorf("%s: n%d to n7 over the link into n7: %v", name, other, l.Crossed[links[1]])
			}
		}
	}
	for link, c := range first.Crossed {
		if strings.HasPrefix(link, "from-rack-") && (len(c.From) != 2 || len(c.To) != 2) {
			t.Errorf("%s is crossed from %v to %v, want all nodes of both racks", link, c.From, c.To)
		}
	}
	if c := Make(nodes(8), nil, nil, settings()).Crossed["from-n0"]; len(c.From) != 1 || len(c.To) != 7 {
		t.Errorf("where all probe each other: %v", c)
	}
}
