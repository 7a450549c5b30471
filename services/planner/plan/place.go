package plan

import "slices"

// nowhere is the node of a job that has none.
const nowhere = -1

// place is a number of devices on a node, and which ones once they are settled.
type place struct {
	node    int
	size    int
	devices []int
	// others are the parts on further nodes, where a gang spans several.
	others []place
}

func (p *place) held() bool { return p.node != nowhere }

// spread is the number of nodes.
func (p *place) spread() int {
	if !p.held() {
		return 0
	}
	return 1 + len(p.others)
}

// part is the i-th part, in the order of the ranks.
func (p *place) part(i int) *place {
	if i == 0 {
		return p
	}
	return &p.others[i-1]
}

// devicesOn are those on a node, if any.
func (p *place) devicesOn(node int) []int {
	for i := range p.spread() {
		if part := p.part(i); part.node == node {
			return part.devices
		}
	}
	return nil
}

// on says whether any of it is on a node.
func (p *place) on(node int) bool {
	for i := range p.spread() {
		if p.part(i).node == node {
			return true
		}
	}
	return false
}

// total is the number of devices on all nodes.
func (p *place) total() int {
	sum := 0
	for i := range p.spread() {
		sum += p.part(i).size
	}
	return sum
}

// same says whether two places have the same devices, once those are settled.
func (p *place) same(q *place) bool {
	if p.spread() != q.spread() {
		return false
	}
	for i := range p.spread() {
		if x, y := p.part(i), q.part(i); x.node != y.node || !slices.Equal(x.devices, y.devices) {
			return false
		}
	}
	return true
}

// shares are the parts of a place.
func (p *place) shares() []share {
	if !p.held() {
		return nil
	}
	shares := make([]share, p.spread())
	for i := range shares {
		shares[i] = share{p.part(i).node, p.part(i).size}
	}
	return shares
}

// placeOf is the place of shares.
func placeOf(shares []share) place {
	if len(shares) == 0 {
		return place{node: nowhere}
	}
	p := place{node: shares[0].node, size: shares[0].devices}
	for _, s := range shares[1:] {
		p.others = append(p.others, place{node: s.node, size: s.devices})
	}
	return p
}
