package fabric

import "fmt"

// clos is the common part of fat-trees and VL2: aggregation switches, each with as many racks below as there are
// switches above. A path goes from a rack up to an aggregation switch, over a core to another aggregation switch and
// down.
type clos struct {
	aggregations int // even
	width        int // racks below each of them, and cores above
	// paired: two neighbours (0 and 1, 2 and 3 ..) serve the same racks, which do not use the core between each other.
	paired   bool
	directed bool
}

func (c clos) links() int { return 2 * c.aggregations * c.width }

func (c clos) rack(a, r int) int32 { return int32(a*c.width + r) }
func (c clos) core(a, k int) int32 { return int32((c.aggregations+a)*c.width + k) }

// paths returns all paths between racks over a core. A round pairs each aggregation switch with another, its rack r
// with rack r+x there, over core r+y: it covers each link exactly once. All pairings, x and y together are all paths.
func (c clos) paths(parts int) Paths {
	pairings := c.aggregations - 1
	first := 0
	if c.paired {
		first = 1 // the pairing of the neighbours
	}
	rounds := (pairings - first) * c.width * c.width
	p := Paths{Links: c.links(), Parts: parts, Rounds: rounds}
	p.Count = int64(parts) * int64(rounds) * int64(c.aggregations/2) * int64(c.width)
	if c.directed {
		p.Links, p.Count = 2*p.Links, 2*p.Count
	}
	p.Round = func(i int) [][]int32 {
		i = scattered(i, rounds)
		return c.round(first+i/(c.width*c.width), i/c.width%c.width, i%c.width)
	}
	return p
}

func (c clos) round(pairing, x, y int) [][]int32 {
	rows := make([][]int32, 0, c.aggregations*c.width)
	for pair := range c.aggregations / 2 {
		a, b := c.pair(pairing, pair)
		for r := range c.width {
			core := (r + y) % c.width
			up, over := c.rack(a, r), c.core(a, core)
			down, back := c.rack(b, (r+x)%c.width), c.core(b, core)
			if !c.directed {
				rows = append(rows, []int32{up, over, back, down})
				continue
			}
			rows = append(rows,
				[]int32{Direction(up, false), Direction(over, false), Direction(back, true), Direction(down, true)},
				[]int32{Direction(down, false), Direction(back, false), Direction(over, true), Direction(up, true)})
		}
	}
	return rows
}

// pair is the circle method for tournaments: in n-1 pairings each meets every other once. Seats are numbered so that
// pairing 0 pairs 0 with 1, 2 with 3 ..
func (c clos) pair(pairing, i int) (int, int) {
	n := c.aggregations - 1
	seat := func(x int) int { // of 0..n-1 on the circle
		switch x = (x%n + n) % n; {
		case x == 0:
			return 1
		case x <= n/2:
			return 2 * x
		default:
			return 2*(n-x) + 1
		}
	}
	if i == 0 {
		return 0, seat(pairing)
	}
	return seat(pairing + i), seat(pairing - i)
}

// FatTree returns a fat-tree of switches with k ports, k even. Servers are left out: their links are not in the probe
// matrix.
func FatTree(k int, directed bool) (*Topology, Paths, error) {
	if k < 4 || k%2 != 0 || k > 128 {
		return nil, Paths{}, fmt.Errorf("fat-tree of %d ports: want an even number from 4 to 128", k)
	}
	half := k / 2
	c := clos{aggregations: k, width: half, directed: directed}
	t := &Topology{}
	for pod := range k {
		for r := range half {
			t.add(fmt.Sprintf("rack-%d-%d", pod, r), Rack)
		}
	}
	for pod := range k {
		for a := range half {
			t.add(fmt.Sprintf("agg-%d-%d", pod, a), Spine)
		}
	}
	for core := range half * half {
		t.add(fmt.Sprintf("core-%d", core), Core)
	}
	// The aggregation switches with number a in their pods, and the cores that join them, form a separate part.
	for a := range half {
		for pod := range k {
			for r := range half {
				t.link(pod*half+r, k*half+pod*half+a)
			}
		}
		for pod := range k {
			for core := range half {
				t.link(k*half+pod*half+a, 2*k*half+a*half+core)
			}
		}
	}
	return t, c.paths(half), nil
}

// VL2 returns the network of that name: da ports on an aggregation switch, di on an intermediate one. The servers of a
// rack do not matter here.
func VL2(da, di int, directed bool) (*Topology, Paths, error) {
	if da < 4 || di < 4 || da%2 != 0 || di%2 != 0 || da > 512 || di > 512 {
		return nil, Paths{}, fmt.Errorf("VL2 of %d and %d ports: want even numbers from 4 to 512", da, di)
	}
	width := da / 2
	c := clos{aggregations: di, width: width, paired: true, directed: directed}
	t := &Topology{}
	racks := width * di / 2
	for r := range racks {
		t.add(fmt.Sprintf("rack-%d", r), Rack)
	}
	for a := range di {
		t.add(fmt.Sprintf("agg-%d", a), Spine)
	}
	for i := range width {
		t.add(fmt.Sprintf("core-%d", i), Core)
	}
	for a := range di {
		for r := range width {
			t.link(a/2*width+r, racks+a)
		}
	}
	for a := range di {
		for i := range width {
			t.link(racks+a, racks+di+i)
		}
	}
	return t, c.paths(1), nil
}
