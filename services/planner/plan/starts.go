package plan

import (
	"cmp"
	"math"
	"slices"
)

// predictedStarts is for how many waiting jobs a start is predicted: further down the line a number would only pretend.
const predictedStarts = 200

// ground is where a job finds its devices: a node, or all nodes of a kind where gangs may span them.
type ground struct {
	devices  int
	memory   int64
	traits   traits
	releases []release
}

// release is a number of devices that come free after so many seconds.
type release struct {
	seconds float64
	devices int
}

// grounds are all of them, and the one of each node.
func (b *board) grounds() ([]ground, []int) {
	type kind struct {
		model  string
		memory int64
		traits traits
	}
	var all []ground
	of, byKind := make([]int, len(b.nodes)), map[kind]int{}
	for i := range b.nodes {
		n := &b.nodes[i]
		at, known := byKind[kind{n.model, n.memory, n.traits}]
		if !known || !b.spans {
			at = len(all)
			byKind[kind{n.model, n.memory, n.traits}] = at
			all = append(all, ground{memory: n.memory, traits: n.traits})
		}
		of[i] = at
		g := &all[at]
		g.devices += len(n.devices)
		if n.free() > 0 {
			g.releases = append(g.releases, release{0, n.free()})
		}
	}
	return all, of
}

// after is when so many devices are free; infinite where they never are.
func (g *ground) after(devices int) float64 {
	for _, r := range g.releases {
		if devices -= r.devices; devices <= 0 {
			return r.seconds
		}
	}
	return math.Inf(1)
}

// occupy takes the first devices that come free and gives them back after so many seconds.
func (g *ground) occupy(devices int, until float64) {
	taken := devices
	for i := range g.releases {
		take := min(g.releases[i].devices, taken)
		g.releases[i].devices -= take
		taken -= take
	}
	g.releases = slices.DeleteFunc(g.releases, func(r release) bool { return r.devices == 0 })
	g.add(release{until, devices})
}

func (g *ground) add(r release) {
	at, _ := slices.BinarySearchFunc(g.releases, r, func(x, y release) int { return cmp.Compare(x.seconds, y.seconds) })
	g.releases = slices.Insert(g.releases, at, r)
}

// predictStarts plays the line forward: each waiting job in turn starts with min devices where enough of them are released first, by the predicted ends of
// those that hold them. A wait of 0 means that it is unknown.
func (b *board) predictStarts() []float64 {
	starts := make([]float64, len(b.jobs))
	var line []*candidate
	for _, c := range b.jobs {
		// Nobody foresees when a quota or the power budget has room again.
		if !c.got.held() && b.allowed(c) {
			line = append(line, c)
		}
	}
	if len(line) == 0 {
		return starts
	}
	grounds, of := b.grounds()
	for _, c := range b.jobs {
		for i := range c.got.spread() {
			p := c.got.part(i)
			g := &grounds[of[p.node]]
			g.releases = append(g.releases, release{c.end(c.got.total()), p.size})
		}
	}
	for i := range grounds {
		slices.SortFunc(grounds[i].releases, func(x, y release) int { return cmp.Compare(x.seconds, y.seconds) })
	}
	slices.SortFunc(line, func(x, y *candidate) int { return x.turn - y.turn })
	for _, c := range line[:min(len(line), predictedStarts)] {
		at, start := nowhere, math.Inf(1)
		for i := range grounds {
			g := &grounds[i]
			if g.devices >= c.min && c.suits(g.memory, g.traits) && g.after(c.min) < start {
				at, start = i, g.after(c.min)
			}
		}
		if at == nowhere {
			continue
		}
		starts[c.rank] = start
		grounds[at].occupy(c.min, start+c.end(c.min))
	}
	return starts
}

// end is the predicted time until a job ends; infinite where nothing is known of it.
func (c *candidate) end(size int) float64 {
	if c.predicted.source == fromNothing {
		return math.Inf(1)
	}
	return c.remaining(size)
}
