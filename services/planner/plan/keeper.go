package plan

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// keeper sets devices aside for jobs that starve, so that those whom they wait for are not followed by others for ever.
type keeper struct {
	jobs map[train.JobID]*Job
	// board has the devices and no jobs, nodes are those of the state in its order.
	board *board
	nodes []*train.Node
	// load is by how many jobs a device is held, all of one tenant; left is what quotas and the power budget leave beside these.
	load   map[spot]int
	tenant map[spot]string
	left   allowance
	// kept are the devices that are set aside, spare is what those of them that are idle leave of left. open is how many others are idle.
	kept  map[spot]*Job
	spare allowance
	open  int
}

func newKeeper(s State) *keeper {
	bare := s
	bare.Jobs = nil
	b := newBoard(bare, true)
	k := &keeper{
		jobs: make(map[train.JobID]*Job, len(s.Jobs)), board: b, nodes: make([]*train.Node, len(b.nodes)),
		load: map[spot]int{}, tenant: map[spot]string{}, left: b.granted.clone(),
	}
	for i := range s.Nodes {
		at, _ := b.findNode(s.Nodes[i].ID)
		k.nodes[at] = &s.Nodes[i]
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		k.jobs[j.ID] = j
		for _, d := range k.held(j) {
			k.hold(j, d)
		}
	}
	k.clear()
	return k
}

// hold counts a device as held by one more job.
func (k *keeper) hold(j *Job, d spot) {
	if k.load[d]++; k.load[d] == 1 {
		k.tenant[d] = j.Spec.Tenant
		k.left.take(j.Spec.Tenant, 1, k.board.nodes[d.node].watts)
	}
}

// setAsideAll keeps what is idle for the first of a line, until all of it is kept: who comes behind them could only be kept what others hold.
func (k *keeper) setAsideAll(line []*Job) {
	k.clear()
	for _, j := range line {
		if k.open == 0 {
			return
		}
		k.setAside(j)
	}
}

func (k *keeper) clear() {
	k.kept, k.spare, k.open = map[spot]*Job{}, k.left.clone(), k.board.total-len(k.load)
}

// handsOut says whether a plan gives anybody a device that nobody holds.
func (k *keeper) handsOut(made train.Plan) bool {
	return slices.ContainsFunc(made.Allocations, func(a train.Allocation) bool { return len(k.idle(k.find(a.Places()))) > 0 })
}

// held are the devices of a job: those of the last plan, or what it runs on where it cannot be asked to leave.
func (k *keeper) held(j *Job) spots {
	h := j.Planned
	if r := j.Running; r != nil && !r.Spoke && !r.StopPending {
		h = &r.Holding
	}
	if h == nil || j.CancelRequested {
		return nil
	}
	return k.find(h.places())
}

func (k *keeper) find(parts []train.Part) spots {
	var found spots
	for _, part := range parts {
		p, _ := k.board.locatePart(part)
		for _, d := range p.devices {
			found = append(found, spot{p.node, d})
		}
	}
	return found
}

// setAside keeps as many devices for a job as it needs, where it finds the most that are idle and that its quota and the power budget leave to it; of equals those
// with the fewest jobs. Where quota or budget are short, it also keeps as many others that have to come free for that.
func (k *keeper) setAside(j *Job) {
	if len(k.kept) == k.board.total {
		return
	}
	var best spots
	var least [3]int
	need, short := max(j.Spec.MinDevices, 1), 0
	for nodes := range k.grounds(j) {
		free, watts := k.free(nodes)
		idle, spare := len(k.idle(free)), k.spare.most(j.Spec.Tenant, watts)
		free = slices.Delete(free, min(idle, spare), idle)
		free = free[:min(len(free), need)]
		jobs := 0
		for _, d := range free {
			jobs += k.load[d]
		}
		if key := [3]int{-len(k.idle(free)), -len(free), jobs}; best == nil || slices.Compare(key[:], least[:]) < 0 {
			best, least, short = free, key, need-spare-len(k.rivals(j, free))
		}
	}
	for _, d := range best {
		if k.kept[d] = j; k.load[d] == 0 {
			k.open--
			k.spare.take(j.Spec.Tenant, 1, k.board.nodes[d.node].watts)
		}
	}
	if short > 0 {
		free, _ := k.free(k.everywhere())
		rivals := k.rivals(j, free)
		for _, d := range rivals[:min(short, len(rivals))] {
			k.kept[d] = j
		}
	}
}

// rivals are those of some devices that are held and count for the quota of a job, or for the power budget.
func (k *keeper) rivals(j *Job, at spots) spots {
	return slices.DeleteFunc(slices.Clone(at), func(d spot) bool { return k.load[d] == 0 || !k.left.rival(j.Spec.Tenant, k.tenant[d]) })
}

// free are the devices of some nodes that are not kept, those with the fewest jobs first, and how much more one of them draws at most when a job has it.
func (k *keeper) free(nodes []int) (free spots, watts float64) {
	for _, at := range nodes {
		n := &k.board.nodes[at]
		watts = max(watts, n.watts)
		for d := range n.devices {
			if k.kept[spot{at, d}] == nil {
				free = append(free, spot{at, d})
			}
		}
	}
	slices.SortStableFunc(free, func(x, y spot) int { return cmp.Compare(k.load[x], k.load[y]) })
	return free, watts
}

func (k *keeper) everywhere() []int {
	all := make([]int, len(k.nodes))
	for at := range all {
		all[at] = at
	}
	return all
}

// idle are those of some devices that nobody holds.
func (k *keeper) idle(at spots) spots {
	return slices.DeleteFunc(slices.Clone(at), func(d spot) bool { return k.load[d] > 0 })
}

// grounds are the nodes among which a job finds all that it needs: each on its own, or where no node is so large and it may be spread, those of a model.
func (k *keeper) grounds(j *Job) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var together [][]int
		byModel, apart := map[string]int{}, false
		for at := range k.nodes {
			if !k.suits(j, at) {
				continue
			}
			n := &k.board.nodes[at]
			if len(n.devices) >= j.Spec.MinDevices {
				if apart = true; !yield([]int{at}) {
					return
				}
				continue
			}
			i, known := byModel[n.model+n.island]
			if !known {
				i, together = len(together), append(together, nil)
				byModel[n.model+n.island] = i
			}
			together[i] = append(together[i], at)
		}
		if apart || k.board.tuning.OneNode {
			return
		}
		for _, nodes := range together {
			if k.devices(nodes) >= j.Spec.MinDevices && !yield(nodes) {
				return
			}
		}
	}
}

func (k *keeper) devices(nodes []int) int {
	sum := 0
	for _, at := range nodes {
		sum += len(k.board.nodes[at].devices)
	}
	return sum
}

// possible says whether there is a place for a job at all, were nobody else there.
func (k *keeper) possible(j *Job) bool {
	for range k.grounds(j) {
		return true
	}
	return false
}

// suits says whether a job may have devices of a node, and as many as it needs by its quota and the power budget.
func (k *keeper) suits(j *Job, at int) bool {
	n := &k.board.nodes[at]
	return len(n.devices) > 0 && k.nodes[at].Has(j.Spec.NodeLabels) && int64(j.Spec.EstimatedMemory()) <= cmp.Or(n.memory, math.MaxInt64) &&
		k.board.granted.most(j.Spec.Tenant, n.watts) >= max(j.Spec.MinDevices, 1)
}
