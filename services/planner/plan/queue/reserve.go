package queue

import (
	"cmp"
	"iter"
	"slices"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// Starve marks the gangs that hold nothing and have waited longer than the starvation bound. It returns them in queue
// order.
func Starve(s *cluster.Snapshot) []*cluster.Gang {
	var starved []*cluster.Gang
	for _, g := range s.Gangs {
		if g.Planned == nil && !g.Silent && s.Age(g)-g.RunSeconds > s.Tuning.StarvationSeconds {
			g.Starved = true
			starved = append(starved, g)
		}
	}
	return starved
}

// Reserve reserves devices for gangs that have waited for too long, so that no newcomers get the devices for which they
// wait: for each gang that can be served at all as many as it needs, where the most are idle. joins says whether a gang
// finds a place beside others; then it needs no devices of its own. If quota or budget are short, devices whose release
// makes room in them are kept, too, and get no guests.
func Reserve(s *cluster.Snapshot, starved []*cluster.Gang, joins func(*cluster.Gang) bool) *Kept {
	k := &Kept{s: s, by: map[cluster.Spot]*cluster.Gang{}, holder: map[cluster.Spot]*cluster.Gang{}, count: make([]int, len(s.Nodes))}
	if len(starved) == 0 {
		return k
	}
	shared := slices.ContainsFunc(s.Gangs, (*cluster.Gang).Shares)
	mark := s.Ledger.Mark()
	k.hold()
	var made []cluster.Reservation
	nothing := map[request]bool{} // what is kept only becomes more: a later job finds no more
	for _, g := range starved {
		if k.open == 0 && (!shared || len(k.by) == s.Total) {
			break
		}
		if asked := (request{g.Least, g.Class, g.MemoryClass, g.Spec.Tenant}); !nothing[asked] && g.Got.Empty() && !joins(g) {
			nothing[asked] = !k.setAside(g)
			made = append(made, g.Notes.Reserved...)
		}
	}
	s.Ledger.DropReservations()
	s.Ledger.Undo(mark)
	for _, r := range made {
		s.Ledger.Reserve(r.For, r.Node, r.Count)
	}
	return k
}

// request holds what decides which devices are reserved: gangs with equal requests find the same ones.
type request struct {
	least, class, memory int
	tenant               string
}

// hold gives each gang what it holds, to see what is left beside that.
func (k *Kept) hold() {
	for _, g := range k.s.Gangs {
		switch {
		case !g.Got.Empty():
		case !g.Held.Empty():
			k.s.Ledger.Force(g, g.Held)
		case !g.Former.Empty():
			k.s.Ledger.Force(g, g.Former)
		}
		for _, d := range g.Got.Spots() {
			k.holder[d] = g
		}
	}
	k.open = k.s.Total - k.s.Ledger.Taken()
}

// reservations are one for each node, for devices of some nodes.
func reservations(g *cluster.Gang, nodes []int) []cluster.Reservation {
	var made []cluster.Reservation
	for _, node := range nodes {
		at := slices.IndexFunc(made, func(r cluster.Reservation) bool { return r.Node == node })
		if at < 0 {
			made = append(made, cluster.Reservation{For: g, Node: node, Count: 1})
		} else {
			made[at].Count++
		}
	}
	return made
}

// Kept are the devices that are kept for gangs that have waited for too long.
type Kept struct {
	s  *cluster.Snapshot
	by map[cluster.Spot]*cluster.Gang
	// holder is a gang that holds the device.
	holder map[cluster.Spot]*cluster.Gang
	// count is the number of devices of each node that are kept.
	count []int
	// open counts the devices that nobody holds and that are not kept.
	open int
}

// From says whether any of some devices is kept for a gang that is served before this one.
func (k *Kept) From(g *cluster.Gang, at []cluster.Spot) bool {
	if k == nil || len(k.by) == 0 {
		return false
	}
	held := g.Held.Spots()
	return slices.ContainsFunc(at, func(d cluster.Spot) bool {
		o := k.by[d]
		return o != nil && o != g && !slices.Contains(held, d) && cluster.InQueue(o, g) < 0
	})
}

// Release gives up what is kept for a gang.
func (k *Kept) Release(g *cluster.Gang) {
	for d, o := range k.by {
		if o == g {
			k.count[d.Node]--
			delete(k.by, d)
		}
	}
}

// setAside keeps as many devices for a gang as it needs, among the nodes where it finds the most that are idle and that
// its quota and the power budget leave to it; of equals those with the fewest jobs. It returns false if it found none.
func (k *Kept) setAside(g *cluster.Gang) bool {
	before := len(k.by)
	var idle []int
	best, short := k.best(g)
	for _, d := range best {
		k.keep(g, d)
		if k.s.Ledger.Holders(d) == 0 {
			k.open--
			idle = append(idle, d.Node)
			k.s.Ledger.Reserve(g, d.Node, 1)
		}
	}
	if g.Notes.Reserved = reservations(g, idle); short <= 0 {
		return len(k.by) > before
	}
	all := make([]int, len(k.s.Nodes))
	for i := range all {
		all[i] = i
	}
	others, _ := k.free(all)
	for _, d := range others {
		if short > 0 && k.s.Ledger.Holders(d) > 0 && k.rival(g, d) {
			k.keep(g, d)
			short--
		}
	}
	return len(k.by) > before
}

func (k *Kept) keep(g *cluster.Gang, d cluster.Spot) {
	k.by[d] = g
	k.count[d.Node]++
}

// best returns the devices to keep for a gang, and how many of others' devices must come free besides because quota or
// budget are short.
func (k *Kept) best(g *cluster.Gang) (best []cluster.Spot, short int) {
	l, need := k.s.Ledger, g.Least
	var least [3]int
	for nodes := range k.grounds(g) {
		free, watts := k.free(nodes)
		idle := k.idle(free)
		spare := l.Allowed(g, watts)
		free = slices.Delete(free, min(idle, spare), idle)
		free = free[:min(len(free), need)]
		jobs, rivals := 0, 0
		for _, d := range free {
			if n := l.Holders(d); n > 0 {
				jobs += n
				if k.rival(g, d) {
					rivals++
				}
			}
		}
		if key := [3]int{-k.idle(free), -len(free), jobs}; best == nil || slices.Compare(key[:], least[:]) < 0 {
			best, least, short = free, key, need-spare-rivals
		}
		if least == [3]int{-need, -need, 0} { // there is no better place than idle devices for all of it
			break
		}
	}
	return best, short
}

// rival says whether the device of others counts for what is missing to a gang.
func (k *Kept) rival(g *cluster.Gang, d cluster.Spot) bool {
	o := k.holder[d]
	return o != nil && k.s.Ledger.Rival(g, o)
}

// idle returns how many of some devices no gang holds; these come first.
func (k *Kept) idle(at []cluster.Spot) int {
	n := 0
	for _, d := range at {
		if k.s.Ledger.Holders(d) == 0 {
			n++
		}
	}
	return n
}

// free are the devices of some nodes that are not kept, those with the fewest jobs first, and how much more one of them
// draws at most when a job has it.
func (k *Kept) free(nodes []int) (free []cluster.Spot, watts float64) {
	for _, at := range nodes {
		watts = max(watts, k.s.Nodes[at].Watts)
		for d := range k.s.Nodes[at].Devices {
			if spot := (cluster.Spot{Node: at, Device: d}); k.by[spot] == nil && !k.s.Nodes[at].IsClosed(d) {
				free = append(free, spot)
			}
		}
	}
	slices.SortStableFunc(free, func(x, y cluster.Spot) int { return cmp.Compare(k.s.Ledger.Holders(x), k.s.Ledger.Holders(y)) })
	return free, watts
}

// serves says whether a gang could ever have its least with devices of a node.
func (k *Kept) serves(n *cluster.Node, g *cluster.Gang) bool {
	return n.Room() > 0 && g.Suits(n) && k.s.Ledger.Granted(g, n.Watts) >= g.Least
}

// grounds are the nodes among which a gang finds all that it needs: each on its own, or if no node is so large and it
// may be spread, those of a model.
func (k *Kept) grounds(g *cluster.Gang) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var together [][]int
		byModel, apart := map[string]int{}, false
		for at := range k.s.Nodes {
			n := &k.s.Nodes[at]
			if !k.serves(n, g) {
				continue
			}
			if n.Room() >= g.Least {
				apart = true
				if k.count[at] < n.Room() && !yield([]int{at}) {
					return
				}
				continue
			}
			i, known := byModel[n.Model+n.Island]
			if !known {
				i, together = len(together), append(together, nil)
				byModel[n.Model+n.Island] = i
			}
			together[i] = append(together[i], at)
		}
		if apart || !k.s.Spans {
			return
		}
		for _, nodes := range together {
			devices := 0
			for _, at := range nodes {
				devices += k.s.Nodes[at].Room()
			}
			if devices >= g.Least && !yield(nodes) {
				return
			}
		}
	}
}
