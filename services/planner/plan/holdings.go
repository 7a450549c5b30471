package plan

import (
	"cmp"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// occupy marks the devices of a live attempt: whoever gets them next has to wait for it to leave.
func (b *board) occupy(j Job) {
	if j.Running == nil {
		return
	}
	for _, part := range j.Running.places() {
		if p, ok := b.locatePart(part); ok {
			for _, d := range p.devices {
				b.nodes[p.node].busy[d] = true
			}
		}
	}
}

// locate finds a holding among the nodes; false where any of it is gone.
func (b *board) locate(h Holding) (place, bool) {
	whole := place{node: nowhere}
	for i, part := range h.places() {
		p, ok := b.locatePart(part)
		switch {
		case !ok || i > 0 && !b.spans:
			return place{node: nowhere}, false
		case i == 0:
			whole = p
		default:
			whole.others = append(whole.others, p)
		}
	}
	return whole, whole.held()
}

func (b *board) findNode(id train.NodeID) (int, bool) {
	return slices.BinarySearchFunc(b.nodes, id, func(n node, id train.NodeID) int { return cmp.Compare(n.id, id) })
}

func (b *board) locatePart(h train.Part) (place, bool) {
	at, found := b.findNode(h.Node)
	if !found || len(h.Devices) == 0 {
		return place{node: nowhere}, false
	}
	p := place{node: at, size: len(h.Devices), devices: make([]int, 0, len(h.Devices))}
	for _, id := range h.Devices {
		d := slices.IndexFunc(b.nodes[at].devices, func(d train.Device) bool { return d.ID == id })
		if d < 0 || slices.Contains(p.devices, d) {
			return place{node: nowhere}, false
		}
		p.devices = append(p.devices, d)
	}
	slices.Sort(p.devices)
	return p, true
}

// findHoldings settles what each job holds. An attempt that cannot be asked to leave holds what it runs on; for all others the last plan
// counts. Where two jobs hold the same device, the one that cannot leave keeps it, else the one that is served first. It marks what is held.
func (b *board) findHoldings() [][]bool {
	taken := b.marks()
	for _, c := range b.jobs {
		if r := c.Running; r != nil && !r.Spoke && !r.StopPending {
			c.pinned = b.hold(c, r.Holding, taken)
		}
	}
	for _, c := range b.jobs {
		if c.base.held() || c.Planned == nil {
			continue
		}
		held, r := b.hold(c, *c.Planned, taken), c.Running
		c.rescalable = held && r != nil && r.Spoke && !r.StopPending && r.same(*c.Planned) && r.Epochs >= 1 && r.Seconds >= b.tuning.MinRescaleSeconds &&
			c.RecentRestarts < b.tuning.MaxRestartsPerHour
		c.movable = c.rescalable
	}
	return taken
}

// marks has a mark for each device, by node.
func (b *board) marks() [][]bool {
	marks := make([][]bool, len(b.nodes))
	all := make([]bool, b.total)
	for i := range b.nodes {
		n := len(b.nodes[i].devices)
		marks[i], all = all[:n:n], all[n:]
	}
	return marks
}

// hold enters what a job holds; false where that is gone, another's, or not of a size for it. Where the size is the user's own request, the policy judges
// it. A job that needs another size than it holds is served anew, and keeps those of its devices that it can.
func (b *board) hold(c *candidate, h Holding, taken [][]bool) bool {
	p, ok := b.locate(h)
	silent := c.Running != nil && !c.Running.Spoke && !c.Running.StopPending
	if !ok {
		return false
	}
	n := p.total()
	fits := c.Request != nil || n >= c.min && (n <= c.max || silent)
	if !fits && silent {
		return false
	}
	for i := range p.spread() {
		part := p.part(i)
		if slices.ContainsFunc(part.devices, func(d int) bool { return taken[part.node][d] }) {
			return false
		}
	}
	for i := range p.spread() {
		for _, d := range p.part(i).devices {
			taken[p.part(i).node][d] = true
		}
	}
	if c.first = p; fits {
		c.base = p
	}
	return fits
}
