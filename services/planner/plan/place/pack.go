package place

import "github.com/switchyard-dl/switchyard/services/planner/plan/cluster"

// shelf is the pools of one model and island, with the node that has the most free devices on top.
type shelf struct {
	model string
	pools []*pool
	total int
}

func (f *Finder) shelves() []*shelf {
	byGroup := map[string]*shelf{}
	var all []*shelf
	for i := range f.s.Nodes {
		n := &f.s.Nodes[i]
		key := n.Model + n.Island
		if byGroup[key] == nil {
			byGroup[key] = &shelf{model: n.Model}
			all = append(all, byGroup[key])
		}
		byGroup[key].total += len(n.Devices)
	}
	for _, p := range f.pools {
		of := byGroup[p.kind.model+p.kind.island]
		of.pools = append(of.pools, p)
	}
	return all
}

// LargestGroup is the most devices that one gang can ever have: those of one model on one island.
func (f *Finder) LargestGroup() int {
	most := 0
	for _, s := range f.groups() {
		most = max(most, s.total)
	}
	return most
}

func (f *Finder) groups() []*shelf {
	if f.all == nil {
		f.all = f.shelves()
	}
	return f.all
}

// Groups are the models of device of the groups of nodes over which one gang may be spread, and Free what is free of
// each.
func (f *Finder) Groups() (models []string, free []int) {
	for _, s := range f.groups() {
		models, free = append(models, s.model), append(free, f.free(s))
	}
	return models, free
}

func (f *Finder) free(s *shelf) int {
	sum := 0
	for _, p := range s.pools {
		sum += p.free
	}
	return sum
}

// Pack is a placement on the given number of devices of the group with the most free ones, each time from the emptiest
// node, the first of equals.
func (f *Finder) Pack(g *cluster.Gang, devices int) (cluster.Placement, bool) {
	best, most := nowhere, 0
	for k, s := range f.groups() {
		if free := f.free(s); free >= devices && free > most {
			best, most = k, free
		}
	}
	if best == nowhere {
		return cluster.Placement{}, false
	}
	return f.PackInto(g, devices, best)
}

// PackInto is Pack within one of Groups.
func (f *Finder) PackInto(g *cluster.Gang, devices, into int) (cluster.Placement, bool) {
	s := f.groups()[into]
	if devices < 1 || f.free(s) < devices {
		return cluster.Placement{}, false
	}
	p := cluster.Placement{}
	for devices > 0 {
		node, free := f.emptiest(s, func(*pool) bool { return true })
		if node == nowhere {
			break
		}
		take := min(devices, free)
		p.Parts = append(p.Parts, cluster.Part{Node: node, Count: take})
		devices -= take
	}
	for _, part := range p.Parts { // they were taken off to find the next ones
		f.put(part.Node)
	}
	return p, devices == 0 && f.s.Ledger.Covers(g, p)
}

// emptiest takes the node with the most free devices, the first of them, off its pool; may says which pools count.
func (f *Finder) emptiest(s *shelf, may func(*pool) bool) (node, free int) {
	node = nowhere
	var of *pool
	for _, p := range s.pools {
		for k := p.perNode; k > 0 && k >= free && may(p); k-- {
			at, found := f.first(p, k)
			if !found {
				continue
			}
			if k > free || at < node {
				node, free, of = at, k, p
			}
			break
		}
	}
	if node != nowhere {
		for h := &of.byFree[free]; h.Len() > 0 && h.Top() == node; {
			h.Pop()
		}
	}
	return node, free
}
