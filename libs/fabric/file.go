package fabric

import (
	"fmt"
	"maps"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/strict"
)

// maxFile bounds the file of a network with tens of thousands of nodes.
const maxFile = 16 << 20

// file is a topology as a person writes it.
type file struct {
	Spines []string   `json:"spines"`
	Racks  []string   `json:"racks"`
	Nodes  []fileNode `json:"nodes"`
	// Links between switches; without any, each rack is linked with each spine.
	Links [][]string `json:"links"`
	// Addresses of the interfaces of switches, by the switch.
	Addresses map[string][]string `json:"addresses"`
}

type fileNode struct {
	Name string `json:"name"`
	Rack string `json:"rack"`
}

// Read reads a topology: `spines`, `racks`, `nodes` with `name` and `rack`, `links` as pairs of names, and `addresses`
// of switches. Racks need not be listed if nodes name them. Spines stands for all switches above racks, on all levels.
func Read(text []byte) (*Topology, error) {
	var f file
	if err := strict.Decode(text, strict.Options{MaxBytes: maxFile, Words: true, Nulls: true}, &f); err != nil {
		return nil, fmt.Errorf("read topology: %w", err)
	}
	b := builder{topology: &Topology{Addresses: map[string]int{}}, index: map[string]int{}, linked: map[LinkID]bool{}}
	for _, s := range f.Spines {
		b.unique(s, Spine)
	}
	for _, r := range f.Racks {
		b.unique(r, Rack)
	}
	for _, n := range f.Nodes {
		if n.Rack == "" {
			b.fail("node %q has no rack", n.Name)
			break
		}
		if _, known := b.index[n.Rack]; !known && len(f.Racks) == 0 {
			b.unique(n.Rack, Rack)
		}
		b.unique(n.Name, Node)
		b.join(n.Name, n.Rack)
	}
	for _, l := range f.Links {
		if len(l) != 2 {
			b.fail("link %q: want two names", l)
			break
		}
		b.join(l[0], l[1])
	}
	if b.err == nil && len(f.Links) == 0 {
		b.joinRacks(f.Spines)
	}
	if b.err == nil && len(b.topology.Links) == 0 {
		b.fail("no links")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Addresses)) {
		b.address(name, f.Addresses[name])
	}
	return b.topology, b.err
}

// builder adds by name and keeps the first error.
type builder struct {
	topology *Topology
	index    map[string]int
	linked   map[LinkID]bool
	err      error
}

func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("read topology: "+format, args...)
	}
}

func (b *builder) unique(name string, tier Tier) {
	if _, known := b.index[name]; known || name == "" {
		b.fail("name %q is used twice or empty", name)
		return
	}
	b.index[name] = b.topology.add(name, tier)
}

// address stores the addresses of a switch.
func (b *builder) address(name string, addresses []string) {
	at, known := b.index[name]
	if !known || b.topology.Vertices[at].Tier == Node {
		b.fail("addresses of %q: want a switch that is listed", name)
		return
	}
	for _, a := range addresses {
		if _, taken := b.topology.Addresses[a]; taken || a == "" {
			b.fail("address %q of %q is used twice or empty", a, name)
			return
		}
		b.topology.Addresses[a] = at
	}
}

// join links two names once.
func (b *builder) join(x, y string) {
	i, known := b.index[x]
	j, both := b.index[y]
	if !known || !both || i == j {
		b.fail("link of %q and %q: want two names that are listed", x, y)
		return
	}
	if id := linkID(x, y); !b.linked[id] {
		b.linked[id] = true
		b.topology.link(i, j)
	}
}

// joinRacks links each rack with all spines, or all racks with each other if there are no spines.
func (b *builder) joinRacks(spines []string) {
	var racks []string
	for _, v := range b.topology.Vertices {
		if v.Tier != Rack {
			continue
		}
		above := spines
		if len(spines) == 0 {
			above = racks
		}
		for _, other := range above {
			b.join(other, v.Name)
		}
		racks = append(racks, v.Name)
	}
}
