package fabric

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// file is a topology as a person writes it.
type file struct {
	Spines []string   `yaml:"spines"`
	Racks  []string   `yaml:"racks"`
	Nodes  []fileNode `yaml:"nodes"`
	// Links between switches; without any, each rack is linked with each spine.
	Links [][]string `yaml:"links"`
}

type fileNode struct {
	Name string `yaml:"name"`
	Rack string `yaml:"rack"`
}

// Read reads a topology: `spines`, `racks`, `nodes` with `name` and `rack`, and `links` as pairs of names. Racks need not be listed when nodes name them. Spines
// stands for all switches above racks, however many levels they have.
func Read(text []byte) (*Topology, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var f file
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("read topology: %w", err)
	}
	b := builder{topology: &Topology{}, index: map[string]int{}, linked: map[LinkID]bool{}}
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
		b.joinRacks(func(string) []string { return f.Spines })
	}
	if b.err == nil && len(b.topology.Links) == 0 {
		b.fail("no links")
	}
	return b.topology, b.err
}

// Labelled is a node as its labels tell of it.
type Labelled struct {
	Name   string
	Rack   string   // none: the node hangs on the network as a whole
	Spines []string // the switches above its rack
}

// FromLabels makes a topology of what labels tell. Where no spines are known, two racks have one logical link for all that lies between them.
func FromLabels(nodes []Labelled) *Topology {
	b := builder{topology: &Topology{}, index: map[string]int{}, linked: map[LinkID]bool{}}
	spines := map[string][]string{}
	for _, n := range nodes {
		rack := n.Rack
		if rack == "" {
			rack = "network"
		}
		rack = "rack/" + rack
		b.once(rack, Rack)
		for _, s := range n.Spines {
			spines[rack] = append(spines[rack], "spine/"+s)
		}
		b.once(n.Name, Node)
		b.join(n.Name, rack)
	}
	for _, v := range b.topology.Vertices {
		for _, s := range spines[v.Name] {
			b.once(s, Spine)
		}
	}
	b.joinRacks(func(rack string) []string { return spines[rack] })
	return b.topology
}

// builder adds by name; the first error stays.
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

func (b *builder) once(name string, tier Tier) {
	if _, known := b.index[name]; !known {
		b.index[name] = b.topology.add(name, tier)
	}
}

func (b *builder) unique(name string, tier Tier) {
	if _, known := b.index[name]; known || name == "" {
		b.fail("name %q is used twice or empty", name)
	}
	b.once(name, tier)
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

// joinRacks links each rack with its spines, and racks without with each other.
func (b *builder) joinRacks(spines func(rack string) []string) {
	var bare []string
	for _, v := range b.topology.Vertices {
		if v.Tier != Rack {
			continue
		}
		above := spines(v.Name)
		for _, s := range above {
			b.join(v.Name, s)
		}
		if len(above) > 0 {
			continue
		}
		for _, other := range bare {
			b.join(other, v.Name)
		}
		bare = append(bare, v.Name)
	}
}
