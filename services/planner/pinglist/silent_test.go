package pinglist

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// wire is a link of the network of these tests: 8 nodes in 4 racks under 2 spines. It has the address at which it
// enters a router or a node.
type wire struct{ to, address string }

// wires are the links that a flow crosses: routers choose the spine by its source port.
func wires(f train.Flow) []wire {
	from, to, spine := int(f.From[1]-'0'), int(f.To[1]-'0'), int(f.Source[len(f.Source)-1]-'0')%2
	all := []wire{{fmt.Sprintf("leaf%d", from/2), fmt.Sprintf("10.1.%d.1", from)}}
	if from/2 != to/2 {
		all = append(
			all,
			wire{fmt.Sprintf("spine%d", spine), fmt.Sprintf("10.2.%d%d.2", from/2, spine)},
			wire{fmt.Sprintf("leaf%d", to/2), fmt.Sprintf("10.2.%d%d.1", to/2, spine)},
		)
	}
	return append(all, wire{string(f.To), host(f.Target)})
}

// layout is which routers are silent, and what else hides paths.
type layout struct {
	silent func(router string) bool
	// dead are addresses into which nothing comes, blind are nodes that hear no router.
	dead, blind []string
	// flat is set where nodes of a rack are on one segment.
	flat bool
}

func (l layout) trace(f train.Flow) train.Path {
	p := train.Path{Flow: f, Hops: []string{}, Complete: true}
	all := wires(f)
	if l.flat && len(all) == 2 {
		return p
	}
	for _, w := range all[:len(all)-1] {
		p.Complete = p.Complete && !slices.Contains(l.dead, w.address)
		if !p.Complete || l.silent != nil && l.silent(w.to) || slices.Contains(l.blind, string(f.From)) {
			w.address = ""
		}
		p.Hops = append(p.Hops, w.address)
	}
	p.Complete = p.Complete && !slices.Contains(l.dead, all[len(all)-1].address)
	return p
}

// found are the paths of all flows of some lists.
func (l layout) found(lists Lists) []train.Paths {
	var all []train.Paths
	for node, list := range lists.Of {
		p := train.Paths{Node: node}
		for _, f := range list.Trace {
			p.Paths = append(p.Paths, l.trace(f))
		}
		all = append(all, p)
	}
	return all
}

func silent(kinds ...string) func(string) bool {
	return func(router string) bool {
		return slices.ContainsFunc(kinds, func(k string) bool { return strings.HasPrefix(router, k) })
	}
}

var layouts = map[string]layout{
	"all answer":                         {},
	"all silent":                         {silent: silent("leaf", "spine")},
	"all silent, racks are segments":     {silent: silent("leaf", "spine"), flat: true},
	"spines silent":                      {silent: silent("spine")},
	"leaves silent":                      {silent: silent("leaf")},
	"one spine silent":                   {silent: silent("spine1")},
	"one leaf silent":                    {silent: silent("leaf3")},
	"a spine and a leaf silent":          {silent: silent("spine0", "leaf2")},
	"a node hears no router":             {blind: []string{"n2"}},
	"a link up to a spine was dead":      {dead: []string{"10.2.01.2"}},
	"a link down from a spine was dead":  {dead: []string{"10.2.20.1"}},
	"a link out of a node was dead":      {dead: []string{"10.1.3.1"}},
	"a link into a node was dead":        {dead: []string{"10.0.0.6"}},
	"a link was dead where spines are":   {silent: silent("spine"), dead: []string{"10.2.01.2"}},
	"a link was dead where all is quiet": {silent: silent("leaf", "spine"), dead: []string{"10.1.3.1"}},
}

func TestNothingIsLeftUnprobedWhereRoutersAreSilent(t *testing.T) {
	first := Make(nodes(8), nil, nil, settings())
	for name, layout := range layouts {
		for _, network := range []bool{false, true} {
			s := settings()
			if network {
				s.Network = yard(t)
			}
			lists := Make(nodes(8), layout.found(first), kept(first), s)
			checkLayout(t, fmt.Sprintf("%s, topology %v", name, network), lists, layout)
			v, pairs := s.survey(members(nodes(8), "rack"), layout.found(first)), map[string]bool{}
			for _, f := range candidates(members(nodes(8), "rack"), s) {
				if v.links(f) != nil {
					pairs[string(f.From+f.To)] = true
				}
			}
			if len(pairs) != 8*7 {
				t.Errorf("%s, topology %v: %d of 56 pairs of nodes can be probed", name, network, len(pairs))
			}
		}
	}
}

// checkLayout wants each link of the network on a path that is probed, and one name for the links out of each node
// and into it.
func checkLayout(t *testing.T, name string, l Lists, from layout) {
	t.Helper()
	crossed, ends := map[wire]bool{}, map[string]string{}
	for _, list := range l.Of {
		for _, f := range list.Probes {
			for _, w := range wires(f) {
				crossed[w] = true
			}
			for end, link := range map[string]string{"out of " + string(f.From): f.Links[0], "into " + string(f.To): f.Links[len(f.Links)-1]} {
				if other, known := ends[end]; known && other != link && !(from.flat && len(f.Links) == 1) {
					t.Errorf("%s: the link %s is %s and %s", name, end, link, other)
				}
				if !from.flat || len(f.Links) > 1 {
					ends[end] = link
				}
			}
		}
	}
	if len(crossed) != 32 {
		t.Errorf("%s: %d of 32 links are probed", name, len(crossed))
	}
	counts, _ := covers(l)
	for link := range l.Crossed {
		if counts[link] == 0 {
			t.Errorf("%s: %s is on no probed path", name, link)
		}
	}
}

// A router that limits its answers is silent now and then. Its links have names already.
func TestSilenceByAccidentMakesNoNames(t *testing.T) {
	first := Make(nodes(8), nil, nil, settings())
	for _, name := range []string{"all answer", "spines silent"} {
		found := layouts[name].found(first)
		want := Make(nodes(8), found, nil, settings())
		n := 0
		for i := range found {
			for k := range found[i].Paths {
				p := &found[i].Paths[k]
				switch n++; {
				case n%7 == 0 && len(p.Hops) > 1:
					p.Hops[n%len(p.Hops)] = ""
				case n%11 == 0:
					p.Complete = false // the target did not answer
				}
			}
		}
		got := Make(nodes(8), found, nil, settings())
		for link := range got.Crossed {
			if _, known := want.Crossed[link]; !known && !strings.HasPrefix(link, "from-rack") {
				t.Errorf("%s: %s is a second name", name, link)
			}
		}
		if name == "all answer" && len(got.Crossed) != 32 {
			t.Errorf("%d links, want 32", len(got.Crossed))
		}
	}
}

func TestTheNamesOfWhatIsSilent(t *testing.T) {
	first := Make(nodes(8), nil, nil, settings())
	for name, want := range map[string]string{
		"all answer":                     "to-10-1-0-1 to-10-2-01-2 to-10-2-21-1 to-10-0-0-4",
		"all silent":                     "from-n0 from-rack-r0-to-r2 to-n4",
		"all silent, racks are segments": "from-n0 from-rack-r0-to-r2 to-10-0-0-4",
		"spines silent":                  "to-10-1-0-1 from-rack-r0-to-10-2-21-1 to-10-2-21-1 to-10-0-0-4",
		"leaves silent":                  "from-n0 to-10-2-01-2 from-10-2-01-2-to-r2 to-n4",
		"a link up to a spine was dead":  "to-10-1-0-1 from-rack-r0-to-r2 to-10-0-0-4",
	} {
		v := settings().survey(members(nodes(8), "rack"), layouts[name].found(first))
		f := train.Flow{From: "n0", To: "n4", Source: "10.0.0.0:28401", Target: "10.0.0.4:7070", DSCP: 10}
		if got := strings.Join(v.links(f), " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// Where routers keep silent on IPv6 packets, the addresses of the other protocol have named the links.
func TestASilentProtocolGivesNoSecondNames(t *testing.T) {
	some := nodes(4)
	for i := range some {
		some[i].Probes = append(some[i].Probes, fmt.Sprintf("[fd00::%d]:7070", i))
	}
	first := Make(some, nil, nil, settings())
	var found []train.Paths
	for node, list := range first.Of {
		p := train.Paths{Node: node}
		for _, f := range list.Trace {
			path := layout{}.trace(f)
			if isIPv6(f.Source) {
				path.Hops = make([]string, len(path.Hops))
			}
			p.Paths = append(p.Paths, path)
		}
		found = append(found, p)
	}
	for link := range Make(some, found, nil, settings()).Crossed {
		if strings.HasPrefix(link, "from-") || strings.Contains(link, "fd00") {
			t.Errorf("%s is a second name", link)
		}
	}
}
