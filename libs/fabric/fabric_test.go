package fabric

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A path is a walk: each link begins where the one before ended, and no link comes twice.
func checkWalk(t *testing.T, topology *Topology, row []int32, directed bool) (from, to int) {
	t.Helper()
	ends := func(l int32) (int, int) {
		if !directed {
			return topology.Links[l].A, topology.Links[l].B
		}
		if l%2 == 1 {
			return topology.Links[l/2].B, topology.Links[l/2].A
		}
		return topology.Links[l/2].A, topology.Links[l/2].B
	}
	from, at := ends(row[0])
	if a, b := ends(row[min(1, len(row)-1)]); !directed && (from == a || from == b) && len(row) > 1 {
		from, at = at, from
	}
	for i, l := range row {
		if slices.Contains(row[:i], l) {
			t.Fatalf("row %v has link %d twice", row, l)
		}
		if i == 0 {
			continue
		}
		a, b := ends(l)
		switch at {
		case a:
			at = b
		case b:
			if directed {
				t.Fatalf("row %v goes the wrong way over link %d", row, l)
			}
			at = a
		default:
			t.Fatalf("row %v does not hang together at link %d", row, l)
		}
	}
	return from, at
}

func TestGeneratedPathsAreAllAndDistinct(t *testing.T) {
	for _, word := range []string{"fattree:4", "fattree:6", "vl2:4,4,1", "vl2:8,6,20", "bcube:2,2", "bcube:3,1", "bcube:4,2"} {
		for _, directed := range []bool{false, true} {
			topology, p, known, err := Generate(word, directed)
			if err != nil || !known {
				t.Fatal(word, known, err)
			}
			links := len(topology.Links)
			if directed {
				links *= 2
			}
			if links != p.Links*p.Parts {
				t.Errorf("%s: %d links, the paths are over %d x %d", word, links, p.Parts, p.Links)
			}
			seen := map[string]bool{}
			for i := range p.Rounds {
				for _, row := range p.Round(i) {
					seen[fmt.Sprint(row)] = true
					last := slices.Clone(row)
					for j := range last {
						last[j] += int32((p.Parts - 1) * p.Links)
					}
					from, to := checkWalk(t, topology, row, directed)
					checkWalk(t, topology, last, directed)
					if topology.Vertices[from].Tier > Rack || topology.Vertices[to].Tier > Rack || from == to {
						t.Fatalf("%s: row %v leads from %v to %v", word, row, topology.Vertices[from], topology.Vertices[to])
					}
				}
			}
			// BCube's paths there and back differ in their order, and with few digits some of them are the same links.
			if want := p.Count / int64(p.Parts); int64(len(seen)) != want && !strings.HasPrefix(word, "bcube") {
				t.Errorf("%s directed %t: %d distinct paths, want %d", word, directed, len(seen), want)
			}
		}
	}
}

func TestARoundOfAClosCoversEachLinkOnce(t *testing.T) {
	for _, word := range []string{"fattree:8", "vl2:12,10,20"} {
		for _, directed := range []bool{false, true} {
			_, p, _, err := Generate(word, directed)
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.Rounds {
				covers := make([]int, p.Links)
				for _, row := range p.Round(i) {
					for _, l := range row {
						covers[l]++
					}
				}
				if slices.Min(covers) != 1 || slices.Max(covers) != 1 {
					t.Fatalf("%s round %d covers links %d to %d times", word, i, slices.Min(covers), slices.Max(covers))
				}
			}
		}
	}
}

// The paths of a fat-tree between pods are those that a search finds.
func TestGeneratedPathsAreShortestWays(t *testing.T) {
	for _, directed := range []bool{false, true} {
		topology, p, err := FatTree(4, directed)
		if err != nil {
			t.Fatal(err)
		}
		routes, err := topology.Routes(directed)
		if err != nil {
			t.Fatal(err)
		}
		var far int64
		for _, r := range routes {
			from, to := checkWalk(t, topology, r.Links, directed)
			if directed && (from != r.From || to != r.To) {
				t.Errorf("route from %d to %d leads from %d to %d", r.From, r.To, from, to)
			}
			if len(r.Links) == 4 {
				far++
			}
		}
		if far != p.Count {
			t.Errorf("directed %t: %d ways between pods, %d generated", directed, far, p.Count)
		}
	}
}

func TestPublishedSizes(t *testing.T) {
	for word, want := range map[string]struct {
		links      int
		candidates int64
	}{
		"fattree:4":  {32, 96},
		"fattree:18": {2916, 162 * 153 / 2 * 81},
		"bcube:4,2":  {192, 64 * 63 * 3},
		"bcube:8,4":  {163840, 5368545280},
		"vl2:40,24,40": {
			960, 66 * 20 * 20 * 20 * 4,
		},
	} {
		_, p, _, err := Generate(word, false)
		if err != nil || p.Links*p.Parts != want.links || p.Count != want.candidates {
			t.Errorf("%s: %d links, %d candidates (%v), want %+v", word, p.Links*p.Parts, p.Count, err, want)
		}
	}
}

func TestWordsThatNameNoNetwork(t *testing.T) {
	for word, known := range map[string]bool{
		"yard.yaml": false, "fattree": false, "fattree:": false, "mesh:3": false,
		"fattree:3": true, "fattree:x": true, "fattree:4,4": true, "vl2:4,4": true, "bcube:2,9": true, "bcube:64,7": true,
	} {
		if _, _, k, err := Generate(word, false); k != known || (err == nil) == known {
			t.Errorf("%s: known %t, error %v", word, k, err)
		}
	}
}

const yard = `
spines: [spine-1, spine-2]
racks: [leaf-1, leaf-2]
nodes:
  - {name: a, rack: leaf-1}
  - {name: b.example, rack: leaf-2}
`

func TestReadAndRoutes(t *testing.T) {
	topology, err := Read([]byte(yard))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, l := range topology.Links {
		ids = append(ids, string(l.ID))
	}
	if want := []string{
		"a=7Eleaf-1", "b=2Eexample=7Eleaf-2", "leaf-1=7Espine-1", "leaf-1=7Espine-2", "leaf-2=7Espine-1", "leaf-2=7Espine-2",
	}; !slices.Equal(ids, want) {
		t.Errorf("links %v, want %v", ids, want)
	}
	if id := topology.DirectedID(3); id != "leaf-2=3Eb=2Eexample" {
		t.Errorf("directed link 3 is %s", id)
	}
	routes, err := topology.Routes(true)
	if err != nil || len(routes) != 4 {
		t.Fatalf("%d routes (%v), want two ways there and two back", len(routes), err)
	}
	for _, r := range routes {
		if from, to := checkWalk(t, topology, r.Links, true); from != r.From || to != r.To || len(r.Links) != 4 {
			t.Errorf("route %+v", r)
		}
	}
}

func TestKeysWithoutAValueAreLeftOut(t *testing.T) {
	topology, err := Read([]byte("spines: [s]\nnodes: [{name: n, rack: q}]\nlinks:\naddresses:\n  # none known\n"))
	if err != nil || len(topology.Links) != 2 {
		t.Errorf("%+v, %v", topology, err)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "the file is empty",
		"speins: [a]":                 "speins",
		"racks: [a]":                  "no links",
		"racks: [a, a]":               "twice",
		"nodes: [{name: n}]":          "no rack",
		"racks: [a]\nlinks: [[a]]":    "two names",
		"racks: [a]\nlinks: [[a, b]]": "listed",
		"racks: [r]\nnodes: [{name: n, rack: q}]":                           "listed",
		"nodes: [{name: n, rack: q}]\naddresses: {n: [10.0.0.1]}":           "a switch",
		"nodes: [{name: n, rack: q}]\naddresses: {q: ['']}":                 "empty",
		"nodes: [{name: n, rack: q}]\naddresses: {q: [10.0.0.1, 10.0.0.1]}": "twice",
	} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
}

func TestNamesOfPaths(t *testing.T) {
	text := "spines: [s1, s2]\nnodes: [{name: a, rack: l1}, {name: b, rack: l2}, {name: c, rack: l2}]\naddresses: {s1: [10.2.0.1, 10.2.0.2], s2: ['fd00::2'], l2: [10.3.0.1]}\n"
	topology, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	n := topology.Names()
	for _, c := range []struct {
		from, to string
		hops     []string
		want     []LinkID
	}{
		// Leaves are recognised by their place in the path, spines by their addresses.
		{"a", "b", []string{"10.1.0.1", "10.2.0.2", "10.9.0.1"}, []LinkID{"a=3El1", "l1=3Es1", "s1=3El2", "l2=3Eb"}},
		{"b", "a", []string{"10.1.0.7", "fd00::2", ""}, []LinkID{"b=3El2", "l2=3Es2", "s2=3El1", "l1=3Ea"}},
		{"a", "b", []string{"10.1.0.1", "10.7.7.7", "10.9.0.1"}, []LinkID{"a=3El1", "", "", "l2=3Eb"}},
		{"b", "c", []string{"10.9.0.1"}, []LinkID{"b=3El2", "l2=3Ec"}},
		// A detour is longer than the topology says; links with known addresses are still named.
		{"b", "c", []string{"10.3.0.1", "10.2.0.1", "10.3.0.1"}, []LinkID{"b=3El2", "l2=3Es1", "s1=3El2", "l2=3Ec"}},
		{"a", "stranger", []string{"10.1.0.1"}, nil},
	} {
		if got := n.Path(c.from, c.to, c.hops); !slices.Equal(got, c.want) {
			t.Errorf("%s to %s by %v: %q, want %q", c.from, c.to, c.hops, got, c.want)
		}
	}
	for _, c := range []struct {
		from, to string
		want     []LinkID
	}{
		{"a", "b", []LinkID{"a=3El1", "l1=3El2", "l2=3Eb"}},
		{"b", "c", []LinkID{"b=3El2", "l2=3Ec"}},
		{"a", "stranger", nil},
		{"a", "a", nil},
	} {
		if got := n.Between(c.from, c.to); !slices.Equal(got, c.want) {
			t.Errorf("between %s and %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}

// A node with a link to a second rack is an end of paths, and no path leads through it.
func TestNoPathLeadsThroughANode(t *testing.T) {
	topology, err := Read([]byte("spines: [s]\nracks: [r1, r2]\nnodes: [{name: a, rack: r1}, {name: n, rack: r1}, {name: b, rack: r2}]\nlinks: [[r1, s], [r2, s], [n, r2]]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, directed := range []bool{false, true} {
		routes, err := topology.Routes(directed)
		if err != nil || len(routes) != 3 && !directed || len(routes) != 6 && directed {
			t.Fatalf("%d routes, %v", len(routes), err)
		}
		for _, r := range routes {
			if from, to := checkWalk(t, topology, r.Links, directed); from != r.From || to != r.To {
				t.Errorf("route %+v leads from %d to %d", r, from, to)
			}
		}
	}
	n := topology.Names()
	for to, want := range map[string][]LinkID{"b": {"a=3Er1", "r1=3Es", "s=3Er2", "r2=3Eb"}, "n": {"a=3Er1", "r1=3En"}} {
		if got := n.Between("a", to); !slices.Equal(got, want) {
			t.Errorf("between a and %s: %q, want %q", to, got, want)
		}
	}
	if got := n.Path("a", "b", []string{"?", "?", "?"}); !slices.Equal(got, n.Between("a", "b")) {
		t.Errorf("path %q", got)
	}
}

// Different names become different tokens, and a token may stand in a subject and in a key.
func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		if (a == b) != (token(a) == token(b)) {
			t.Fatalf("%q and %q become %s and %s", a, b, token(a), token(b))
		}
		if strings.ContainsAny(token(a), ".*> /") {
			t.Fatalf("%q becomes %q", a, token(a))
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(yard))
	f.Add([]byte("racks: [a, b]\nlinks: [[a, b]]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		topology, err := Read(text)
		if err != nil {
			return
		}
		for _, l := range topology.Links {
			if l.A == l.B || topology.Vertices[l.A].Tier > topology.Vertices[l.B].Tier {
				t.Fatalf("link %+v", l)
			}
		}
	})
}

func TestPicture(t *testing.T) {
	topology, err := Read([]byte(strings.ReplaceAll(yard, "name: a,", "name: '<a&>',")))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := topology.Draw(&b, map[LinkID]State{
		"leaf-1=7Espine-1": {Loss: 0.06}, "spine-2=3Eleaf-1": {Loss: 0.02}, "leaf-1=3Espine-2": {DelaySeconds: 0.004}, "leaf-2=7Espine-1": {}, "b=2Eexample=3Eleaf-2": {DelaySeconds: 0.004},
	}); err != nil {
		t.Fatal(err)
	}
	picture := b.String()
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"leaf-1 - spine-1: 6 % lost", "leaf-1 - spine-2: 2 % lost", "leaf-2 - spine-1: 0 % lost", "leaf-2 - spine-2: not measured", "b.example - leaf-2: 4 ms slow", "&lt;a&amp;&gt;"} {
		if !strings.Contains(picture, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	big, _, err := FatTree(48, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := big.Draw(io.Discard, nil); err == nil {
		t.Error("a picture of 55,296 links was drawn")
	}
}

func TestFromSeen(t *testing.T) {
	topology := FromSeen([]Seen{
		{"a", "b.example", []LinkID{"a=3El1", "l1=3Es1", "s1=3El2", "l2=3Eb=2Eexample"}},
		{"b.example", "a", []LinkID{"b=2Eexample=3El2", "l2=3Es1", "s1=3El1", "l1=3Ea"}},
		{"c", "d", []LinkID{"to-10-1-0-1", "to-10-2-0-1", "to-10-1-1-2"}},
		{"c", "d", []LinkID{"from-c", "from-rack-r-to-q", "to-d"}},
	})
	tiers, links := map[string]Tier{}, map[LinkID]string{}
	for _, v := range topology.Vertices {
		tiers[v.Name] = v.Tier
	}
	for _, l := range topology.Links {
		links[l.ID] = topology.Vertices[l.A].Name + " " + topology.Vertices[l.B].Name
	}
	want := map[LinkID]string{
		"a=7El1": "a l1", "l1=7Es1": "l1 s1", "l2=7Es1": "s1 l2", "b=2Eexample=7El2": "l2 b.example", "to-10-1-0-1": "c 10-1-0-1", "to-10-2-0-1": "10-1-0-1 10-2-0-1",
		"to-10-1-1-2": "10-2-0-1 d", "from-c": "c from-c", "from-rack-r-to-q": "from-c from-rack-r-to-q", "to-d": "from-rack-r-to-q d",
	}
	if !maps.Equal(links, want) {
		t.Errorf("links %q, want %q", links, want)
	}
	if tiers["a"] != Node || tiers["b.example"] != Node || tiers["l1"] != Rack || tiers["l2"] != Rack || tiers["s1"] != Spine || tiers["d"] != Node || tiers["10-2-0-1"] != Rack {
		t.Errorf("tiers %v", tiers)
	}
}
