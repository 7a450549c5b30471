// Package feasible says which nodes a gang may have devices of, alone or together: by labels, memory, links that lose
// packets, and whether a node reports.
package feasible

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// Classify writes a class into each node, one byte for each node selector that some gang has: '1' if the node suits it.
// Nodes of one class are alike for every gang. It then puts nodes between which a link loses more than the bound on
// different islands.
func Classify(s *cluster.Snapshot) {
	selectors, off := map[string]selector{}, excludedNodes(s)
	for _, g := range s.Gangs {
		if key := selectorOf(g, off); key != "" {
			selectors[key] = selector{g.Spec.NodeLabels, off[g.ID]}
		}
	}
	names := slices.Sorted(maps.Keys(selectors))
	for _, g := range s.Gangs {
		if key := selectorOf(g, off); key != "" {
			g.Class, _ = slices.BinarySearch(names, key)
		}
	}
	for i := range s.Nodes {
		has := make([]byte, len(names))
		for k, name := range names {
			has[k] = '0'
			if selectors[name].suits(s.Nodes[i].Spec) {
				has[k] = '1'
			}
		}
		s.Nodes[i].Class = string(has)
	}
	islands(s)
}

// selector is the labels that gangs ask for, and the nodes that are excluded for one gang alone.
type selector struct {
	labels map[string]string
	off    []train.NodeID
}

func (of selector) suits(n *train.Node) bool {
	return n.Has(of.labels) && !slices.Contains(of.off, n.ID)
}

// selectorOf tells selectors apart; empty if any node will do.
func selectorOf(g *cluster.Gang, off map[train.JobID][]train.NodeID) string {
	if len(off[g.ID]) > 0 {
		return Selector(g) + "\x00" + string(g.ID)
	}
	return Selector(g)
}

// excludedNodes are the nodes that are excluded for one job alone.
func excludedNodes(s *cluster.Snapshot) map[train.JobID][]train.NodeID {
	off := map[train.JobID][]train.NodeID{}
	for i := range s.State.Exclusions {
		if e := &s.State.Exclusions[i]; e.Job != "" {
			off[e.Job] = append(off[e.Job], e.Node)
		}
	}
	return off
}

// Selector says in words which labels a gang asks for; empty for none.
func Selector(g *cluster.Gang) string {
	if len(g.Spec.NodeLabels) == 0 {
		return ""
	}
	return " with the labels " + train.JoinLabels(g.Spec.NodeLabels)
}

// islands partitions the nodes by links above the bound, into as few islands as a greedy search finds. Gangs on one
// node send nothing over the network and may have any of them.
func islands(s *cluster.Snapshot) {
	bad := s.BadLinks()
	if len(bad) == 0 || !s.Spans {
		return
	}
	apart := func(x, y int) bool {
		return slices.ContainsFunc(bad, func(l *cluster.Link) bool { return l.Between(x, y) })
	}
	// Nodes that are apart from few others come first, so that the first island is large.
	foes, order := make([]int, len(s.Nodes)), make([]int, len(s.Nodes))
	for i := range s.Nodes {
		order[i] = i
		for k := range s.Nodes {
			if apart(i, k) {
				foes[i]++
			}
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(foes[x], foes[y]) })
	var islands [][]int
	for _, i := range order {
		at := slices.IndexFunc(islands, func(members []int) bool {
			return !slices.ContainsFunc(members, func(k int) bool { return apart(i, k) })
		})
		if at < 0 {
			at, islands = len(islands), append(islands, nil)
		}
		islands[at] = append(islands[at], i)
		if at > 0 {
			s.Nodes[i].Island = "/" + strconv.Itoa(at)
		}
	}
}

// Space is the most devices that a gang finds in one place: all of them, the free ones, and those that are idle but may
// be reserved for others.
type Space struct{ Widest, Free, Idle int }

// Spaces finds what gangs find in one place. It remembers what gangs alike have found.
type Spaces struct {
	s     *cluster.Snapshot
	known map[spaceKey]Space
	// kept and unexcluded are what exclusions keep from gangs, and what these would find without any.
	kept       map[spaceKey][]train.Reason
	unexcluded map[spaceKey]int
}

type spaceKey struct {
	memory, least, class int
	// reserved tells apart from whom devices are kept.
	reserved int
}

// NewSpaces is for one moment of a decision: it remembers what is free.
func NewSpaces(s *cluster.Snapshot) *Spaces {
	return &Spaces{s, map[spaceKey]Space{}, map[spaceKey][]train.Reason{}, map[spaceKey]int{}}
}

// Of is what a gang finds in one place.
func (p *Spaces) Of(g *cluster.Gang) Space {
	key := spaceKey{g.MemoryClass, g.Least, g.Class, p.s.Ledger.ReservedAhead(g)}
	if r, known := p.known[key]; known {
		return r
	}
	r, sums := Space{}, map[string]Space{}
	for i := range p.s.Nodes {
		n := &p.s.Nodes[i]
		if !g.Suits(n) || !p.s.Spans && n.Room() < g.Least {
			continue
		}
		here := Space{n.Room(), max(p.s.Ledger.FreeFor(g, i), 0), max(p.s.Ledger.Free(i), 0)}
		if p.s.Spans {
			together := n.Model + n.Island
			sum := sums[together]
			here = Space{here.Widest + sum.Widest, here.Free + sum.Free, here.Idle + sum.Idle}
			sums[together] = here
		}
		r = Space{max(r.Widest, here.Widest), max(r.Free, here.Free), max(r.Idle, here.Idle)}
	}
	p.known[key] = r
	return r
}

// Impossible is the reason of a gang that the present nodes could never hold, were they empty; false if they could.
func (p *Spaces) Impossible(g *cluster.Gang) (train.Reason, bool) {
	never, is := p.impossible(g)
	if is && len(p.s.State.Exclusions) > 0 {
		if why, excluded := p.excluded(g); excluded {
			return why, true
		}
	}
	return never, is
}

func (p *Spaces) impossible(g *cluster.Gang) (train.Reason, bool) {
	if len(p.s.Nodes) == 0 {
		return train.Reason{Code: NoNode, Message: "no node is alive", Hint: "start a node agent"}, true
	}
	if !labelled(p.s, g) {
		return train.Reason{
			Code: NoNode, Message: "no node that is alive has the labels " + train.JoinLabels(g.Spec.NodeLabels), Hint: "label a node, or leave node_labels out",
		}, true
	}
	if apart, lossy := cutOff(p.s, g); lossy {
		return apart, true
	}
	if p.Of(g).Widest < g.Least {
		return tooFew(p.s, g), true
	}
	if g.Servers != nil && !serversFit(p.s, g) {
		return train.Reason{
			Code: DevicesTooFew, Message: fmt.Sprintf("needs %s and 1 parameter server, and no node has room for the server", cluster.Devices(g.Least)),
			Hint: "lower what a parameter server needs",
		}, true
	}
	return train.Reason{}, false
}

// labelled says whether any node has the labels that a gang asks for.
func labelled(s *cluster.Snapshot, g *cluster.Gang) bool {
	if g.Class == cluster.Anywhere || len(g.Spec.NodeLabels) == 0 {
		return true
	}
	for i := range s.Nodes {
		if s.Nodes[i].Class[g.Class] == '1' {
			return true
		}
	}
	return false
}

// serversFit says whether an empty node that suits a gang has the cores and the memory for one of its servers.
func serversFit(s *cluster.Snapshot, g *cluster.Gang) bool {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		workers := 0
		if n.Slots {
			workers = 1
		}
		cores, ram := g.ServerNeeds(1)
		if g.Suits(n) && n.Cores >= cores+workers && n.RAM >= ram {
			return true
		}
	}
	return false
}

// The codes of what is never feasible.
const (
	NoNode        = "NoNode"
	DevicesTooFew = "DevicesTooFew"
	LinkDegraded  = "LinkDegraded"
)

// cutOff is the reason of a gang that would find devices if no link lost packets; false if that is not why it waits.
func cutOff(s *cluster.Snapshot, g *cluster.Gang) (train.Reason, bool) {
	bad := s.BadLinks()
	if len(bad) == 0 || !s.Spans {
		return train.Reason{}, false
	}
	all, together := map[string]int{}, map[string]int{}
	whole, widest := 0, 0
	for i := range s.Nodes {
		if n := &s.Nodes[i]; g.Suits(n) {
			all[n.Model] += n.Room()
			together[n.Model+n.Island] += n.Room()
			whole, widest = max(whole, all[n.Model]), max(widest, together[n.Model+n.Island])
		}
	}
	if whole < g.Least || widest >= g.Least {
		return train.Reason{}, false
	}
	return train.Reason{
		Code:    LinkDegraded,
		Message: fmt.Sprintf("needs %s on nodes between which packets arrive, and there are %d: %s", cluster.Devices(g.Least), widest, cluster.LossWords(bad)),
		Hint:    "`switchyard net status` shows the links",
	}, true
}

// tooFew is the reason of a gang that needs more devices in one place than there are.
func tooFew(s *cluster.Snapshot, g *cluster.Gang) train.Reason {
	where, widest := " on one node", "the largest has"
	if s.Spans {
		where, widest = "", "there are"
	}
	most := s.Widest()
	r := train.Reason{
		Code: DevicesTooFew, Message: fmt.Sprintf("needs %s%s, and %s %d", cluster.Devices(g.Least), where, widest, most),
		Hint: "lower min_devices or add devices",
	}
	switch {
	case most < g.Least:
	case len(g.Spec.NodeLabels) > 0:
		r.Message = fmt.Sprintf("needs %s%s%s, and there are fewer", cluster.Devices(g.Least), where, Selector(g))
		r.Hint = "lower min_devices or what is asked of the node"
	default:
		r.Message = fmt.Sprintf("needs %s of %s each%s, and no node has them", cluster.Devices(g.Least), g.Spec.EstimatedMemory(), where)
		r.Hint = "lower min_devices or estimated_memory_mib"
	}
	return r
}
