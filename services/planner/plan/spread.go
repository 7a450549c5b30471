package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// room is an amount of what tasks take up; where a node does not say what it has of cores or memory, it has no bound.
type room struct {
	devices, cores int
	memory         int64
	// slots says that the devices are CPU slots, which take up the cores, model which kind of device it is.
	slots bool
	model string
}

// unbounded stands for a resource of which nothing is said.
const unbounded = math.MaxInt32

func newRoom(n *node, of train.Node) room {
	r := room{devices: len(n.devices), cores: cmp.Or(of.Cores, unbounded), memory: int64(of.Memory)}
	if r.memory == 0 {
		r.memory = math.MaxInt64 >> 20
	}
	if len(n.devices) > 0 {
		r.slots, r.model = n.devices[0].ID.Kind() == train.KindCPU, n.devices[0].Model+n.island
	}
	if r.slots {
		// More slots than cores are no lack of cores.
		r.cores = max(r.cores, r.devices)
	}
	return r
}

func (r *room) has(need room) bool {
	return r.devices >= need.devices && r.cores >= need.cores && r.memory >= need.memory
}

func (r *room) take(need room) {
	r.devices, r.cores, r.memory = r.devices-need.devices, r.cores-need.cores, r.memory-need.memory
}

// shareOf is the largest part of the whole that any of it is.
func (r room) shareOf(whole room) float64 {
	part := func(x, of float64) float64 { return x / math.Max(of, 1) }
	return max(part(float64(r.devices), float64(whole.devices)), part(float64(r.cores), float64(whole.cores)), part(float64(r.memory), float64(whole.memory)))
}

// rack is the nodes of one model of device, those with the most free devices first.
type rack struct {
	model string
	free  int
	nodes []int
}

// less orders nodes of a rack.
func less(free []room) func(x, y int) int {
	return func(x, y int) int {
		return cmp.Or(cmp.Compare(free[y].devices, free[x].devices), cmp.Compare(free[y].cores, free[x].cores), cmp.Compare(x, y))
	}
}

// racks sorts the nodes once; later each node that is given something moves to its new place.
func racks(free []room) []*rack {
	var all []*rack
	byModel := map[string]*rack{}
	for i, room := range free {
		r := byModel[room.model]
		if r == nil {
			r = &rack{model: room.model}
			byModel[room.model] = r
			all = append(all, r)
		}
		r.free += room.devices
		r.nodes = append(r.nodes, i)
	}
	for _, r := range all {
		slices.SortFunc(r.nodes, less(free))
	}
	return all
}

// put gives tasks room on a node of the rack.
func (r *rack) put(node int, need room, free []room) {
	at, _ := slices.BinarySearchFunc(r.nodes, node, less(free))
	r.nodes = slices.Delete(r.nodes, at, at+1)
	free[node].take(need)
	r.free -= need.devices
	at, _ = slices.BinarySearchFunc(r.nodes, node, less(free))
	r.nodes = slices.Insert(r.nodes, at, node)
}

// spread finds places for a crew by Optimus's theorem (section 4.2): a synchronous job is fastest on the fewest nodes on which equal numbers of servers, and
// of workers, fit. It tries one node, two and so on, always those with the most free devices of one model; where the numbers do not divide, some have
// one more. Nil where the crew does not fit. The theorem is about nodes that all have both kinds of task: to put all servers beside as many workers as
// possible on one node can be faster still, but then that node's link carries all of the job's traffic.
func (d *crews) spread(c *crew, r roles, shelves []*rack, free []room) []berth {
	slices.SortStableFunc(shelves, func(x, y *rack) int { return cmp.Compare(y.free, x.free) })
	for _, shelf := range shelves {
		var nodes []int
		for _, n := range shelf.nodes {
			if len(nodes) == r.workers || free[n].devices == 0 {
				break
			}
			if !c.suits(d.nodes[n].memory, d.nodes[n].traits) {
				continue
			}
			nodes = append(nodes, n)
			if placed := d.evenly(c, r, nodes, free); placed != nil {
				return placed
			}
		}
	}
	return nil
}

// evenly puts a crew on just these nodes; nil where some part does not fit. The first ones get a worker more where the division leaves some, the last ones a
// server more, so that as few as possible have both.
func (d *crews) evenly(c *crew, r roles, nodes []int, free []room) []berth {
	k := len(nodes)
	if r.workers > k*free[nodes[0]].devices {
		return nil
	}
	placed := make([]berth, k)
	for i, n := range nodes {
		part := roles{workers: r.workers / k, servers: r.servers / k}
		if i < r.workers%k {
			part.workers++
		}
		if i >= k-r.servers%k {
			part.servers++
		}
		if !free[n].has(c.needs(part, free[n].slots)) {
			return nil
		}
		placed[i] = berth{node: n, roles: part}
	}
	return placed
}

// place settles where the crews are: those that keep their size stay where they are, in order of priority; the others are spread anew, the small ones
// first. One that does not fit stays as it is, or loses the task that it misses least until it fits, and waits where not even its floor does. Whoever
// waited so before has its turn before those of lower priority stay. It says whether all have a place.
func (d *crews) place() bool {
	free := slices.Clone(d.rooms)
	var ahead, moving []*crew
	for _, c := range d.all {
		if c.placed = nil; c.homeless > 0 && !c.got.none() {
			ahead = append(ahead, c)
		}
	}
	all := true
	for _, c := range d.all {
		for len(ahead) > 0 && !c.pinned && ahead[0].Priority > c.Priority {
			all = d.move(ahead[:1], free) && all
			ahead = ahead[1:]
		}
		if c.got.none() || c.homeless > 0 {
			continue
		}
		if c.got != c.base || !c.stay(free, func(n int, need room) { free[n].take(need) }) {
			moving = append(moving, c)
		}
	}
	moving = append(moving, ahead...)
	slices.SortStableFunc(moving, func(x, y *crew) int {
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(x.got.workers+x.got.servers, y.got.workers+y.got.servers))
	})
	return d.move(moving, free) && all
}

// move finds crews new places, one after the other; false where there is none for some.
func (d *crews) move(moving []*crew, free []room) bool {
	shelves, all := racks(free), true
	put := func(n int, need room) {
		at := slices.IndexFunc(shelves, func(r *rack) bool { return r.model == free[n].model })
		shelves[at].put(n, need, free)
	}
	for _, c := range moving {
		for !c.got.none() && !d.settleOn(c, shelves, free, put) {
			c.got = d.smaller(c)
		}
		if c.got.none() {
			c.homeless++
			all = false
		}
	}
	return all
}

// settleOn gives a crew of its size a new place, or leaves it as it is.
func (d *crews) settleOn(c *crew, shelves []*rack, free []room, put func(node int, need room)) bool {
	if c.placed = d.spread(c, c.got, shelves, free); c.placed != nil {
		for _, b := range c.placed {
			put(b.node, c.needs(b.roles, free[b.node].slots))
		}
		return true
	}
	if c.stay(free, put) {
		c.got = c.base
		return true
	}
	return false
}

// stay leaves a crew where it is, if nobody was put there before.
func (c *crew) stay(free []room, put func(node int, need room)) bool {
	for _, b := range c.held {
		if !free[b.node].has(c.needs(b.roles, free[b.node].slots)) {
			return false
		}
	}
	for _, b := range c.held {
		put(b.node, c.needs(b.roles, free[b.node].slots))
	}
	c.placed = c.held
	return len(c.held) > 0
}

// smaller is the crew without the task that it misses least; none where it is at its floor.
func (d *crews) smaller(c *crew) roles {
	floor, best, least := c.floor(), roles{}, math.Inf(1)
	for _, less := range []roles{{c.got.workers - 1, c.got.servers}, {c.got.workers, c.got.servers - 1}} {
		if less.workers < floor.workers || less.servers < floor.servers {
			continue
		}
		if seconds := d.remaining(c, less); seconds < least {
			best, least = less, seconds
		}
	}
	return best
}
