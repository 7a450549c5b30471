package feasible

import (
	"fmt"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// Kept is what exclusions keep from a gang on nodes that would suit it, in the order of the nodes.
func (p *Spaces) Kept(g *cluster.Gang) []train.Reason {
	if len(p.s.State.Exclusions) == 0 {
		return nil
	}
	key := spaceKey{memory: g.MemoryClass, class: g.Class}
	if kept, known := p.kept[key]; known {
		return kept
	}
	var kept []train.Reason
	for i := range p.s.State.Exclusions {
		e := &p.s.State.Exclusions[i]
		for n := range p.s.WholeNodes(e.Node) {
			if e.Concerns(g.ID) && suits(g, n) && !slices.Contains(kept, e.Reason) {
				kept = append(kept, e.Reason)
			}
		}
	}
	p.kept[key] = kept
	return kept
}

// suits says whether a node has the labels and devices that a gang asks for, exclusions aside.
func suits(g *cluster.Gang, n *cluster.Node) bool {
	return g.Fits(n.Memory) && g.StartsOn(n.ID) && n.Spec.Has(g.Spec.NodeLabels) && g.Need.Suits(n.Spec)
}

// excluded is the reason of a gang that would find its devices if nothing were excluded; false if that is not why it
// waits.
func (p *Spaces) excluded(g *cluster.Gang) (train.Reason, bool) {
	kept := p.Kept(g)
	if len(kept) == 0 || p.lifted(g) < g.Least {
		return train.Reason{}, false
	}
	r := kept[0]
	r.Message = fmt.Sprintf("needs %s%s, and %s", g.Asks(), Selector(g), KeptWords(kept))
	return r, true
}

// lifted is the most devices that a gang would find in one place if nothing were excluded and nobody there.
func (p *Spaces) lifted(g *cluster.Gang) int {
	key := spaceKey{memory: g.MemoryClass, class: g.Class}
	if most, known := p.unexcluded[key]; known {
		return most
	}
	most, together := 0, map[string]int{}
	for n := range p.s.Whole() {
		if !suits(g, n) {
			continue
		}
		size := len(n.Devices)
		if p.s.Spans {
			size += together[n.Model+n.Realm]
			together[n.Model+n.Realm] = size
		}
		most = max(most, size)
	}
	p.unexcluded[key] = most
	return most
}

// KeptWords joins reasons to one clause; of many it gives the first ones.
func KeptWords(kept []train.Reason) string {
	const shown = 3
	var words []string
	for i, r := range kept {
		if i == shown {
			words = append(words, fmt.Sprintf("%d more nodes or devices are excluded", len(kept)-shown))
			break
		}
		words = append(words, r.Message)
	}
	return strings.Join(words, ", ")
}
