// Package feasible says which nodes a gang may have devices of, alone or together: by labels, memory, links that lose
// packets, and whether a node reports.
package feasible

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// Classify writes a class into each node, one byte for each node selector that some gang has: '1' if the node suits it.
// Nodes of one class are alike for every gang. It then puts nodes between which a link loses more than the bound on
// different islands.
func Classify(s *cluster.Snapshot) {
	selectors, off := map[string]selector{}, excludedNodes(s)
	for _, g := range s.Gangs {
		if key := selectorOf(g, off); key != "" {
			selectors[key] = selector{g.Spec.NodeLabels, g.Need, g.Spec.Cores, g.RAM, off[g.ID]}
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

// selector is the labels, the devices, and the cores and main memory of a process that gangs ask for, and the nodes
// that are excluded for one gang alone.
type selector struct {
	labels map[string]string
	need   train.DeviceNeed
	cores  int
	ram    int64
	off    []train.NodeID
}

func (of selector) suits(n *train.Node) bool {
	large := (n.Cores == 0 || of.cores <= n.Cores) && (n.Memory == 0 || of.ram <= int64(n.Memory))
	return large && n.Has(of.labels) && of.need.Suits(n) && !slices.Contains(of.off, n.ID)
}

// selectorOf tells selectors apart; empty if any node will do. Gangs that may start on other nodes are told apart, too,
// but the classes of nodes do not follow from that: each pod of no job would make all nodes unlike.
func selectorOf(g *cluster.Gang, off map[train.JobID][]train.NodeID) string {
	key := Selector(g)
	if g.Need.Chosen() {
		key += "\x00" + string(g.Need.Kind) + " " + strings.Join(g.Need.Models, "|")
	}
	if g.RAM > 0 || g.Spec.Cores > 0 {
		key += fmt.Sprint("\x00", g.RAM, g.EachDevice, g.Spec.Cores)
	}
	if len(g.OnlyNodes) > 0 {
		key += fmt.Sprint("\x00", g.OnlyNodes)
	}
	if len(off[g.ID]) > 0 {
		key += "\x00" + string(g.ID)
	}
	return key
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

// islands partitions the nodes by realms, and by links above the bound, into as few islands as a greedy search finds.
// Gangs on one node send nothing over the network and may have any of them.
func islands(s *cluster.Snapshot) {
	for i := range s.Nodes {
		s.Nodes[i].Island = s.Nodes[i].Realm
	}
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
			s.Nodes[i].Island += "/" + strconv.Itoa(at)
		}
	}
}

// Space is the most devices that a gang finds in one place, beside the parameter servers that it needs at least: all of
// them, the free ones, and those that are idle but may be reserved for others.
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
	servers              train.ServersSpec
	// reserved tells apart from whom devices are kept.
	reserved int
}

// NewSpaces is for one moment of a decision: it remembers what is free.
func NewSpaces(s *cluster.Snapshot) *Spaces {
	return &Spaces{s, map[spaceKey]Space{}, map[spaceKey][]train.Reason{}, map[spaceKey]int{}}
}

// Of is what a gang finds in one place.
func (p *Spaces) Of(g *cluster.Gang) Space {
	key := spaceKey{g.MemoryClass, g.Least, g.Class, train.ServersSpec{}, p.s.Ledger.ReservedAhead(g)}
	if g.Servers != nil {
		key.servers = *g.Servers
	}
	if r, known := p.known[key]; known {
		return r
	}
	r := p.find(g, g.ServersLeast())
	p.known[key] = r
	return r
}

// Devices is what a gang finds in one place if it needs no parameter servers.
func (p *Spaces) Devices(g *cluster.Gang) Space { return p.find(g, 0) }

func (p *Spaces) find(g *cluster.Gang, servers int) Space {
	var r Space
	l, groups := p.s.Ledger, map[string]*[3]sum{}
	for i := range p.s.Nodes {
		n := &p.s.Nodes[i]
		if !g.Suits(n) || !p.s.Spans && n.Room() < g.Least {
			continue
		}
		together := ""
		if p.s.Spans {
			together = n.Model + n.Island
		}
		of := groups[together]
		if of == nil || !p.s.Spans {
			of = &[3]sum{}
			groups[together] = of
		}
		for k, here := range [3]amount{
			{n.Room(), n.Cores, n.RAM}, {l.FreeFor(g, i), l.CoresLeft(i), l.RAMLeft(i)}, {l.Free(i), l.CoresLeft(i), l.RAMLeft(i)},
		} {
			of[k].add(max(g.Within(here.ram, here.devices), 0), here.beside(g, n, servers))
		}
		r = Space{max(r.Widest, of[0].most()), max(r.Free, of[1].most()), max(r.Idle, of[2].most())}
	}
	return r
}

// amount is what a node has, or has left.
type amount struct {
	devices, cores int
	ram            int64
}

// beside is how many workers of a gang go beside the given servers.
func (a amount) beside(g *cluster.Gang, n *cluster.Node, servers int) int {
	cores, ram := g.Needs(0, servers)
	if a.cores < cores || ram > 0 && a.ram < ram {
		return 0
	}
	if n.Slots {
		a.devices = min(a.devices, a.cores-cores)
	}
	return max(g.Within(a.ram-ram, a.devices), 0)
}

// sum is the devices of nodes over which a gang may be spread. One of the nodes has the servers, and a worker: that is
// where they cost the fewest devices.
type sum struct {
	devices, cost int
	room          bool
}

func (s *sum) add(devices, beside int) {
	s.devices += devices
	if cost := devices - beside; beside > 0 && (!s.room || cost < s.cost) {
		s.cost, s.room = cost, true
	}
}

func (s *sum) most() int {
	if !s.room {
		return 0
	}
	return s.devices - s.cost
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
	if p.Of(g).Widest < g.Least && !p.offered(g) {
		return train.Reason{
			Code: train.NodeNotOffered, Message: fmt.Sprintf("needs %s, and none of the nodes where the scheduler of the cluster would start it has one", Wants(g)),
			Hint: "`switchyard node list` shows the devices",
		}, true
	}
	if p.Of(g).Widest < g.Least {
		if g.Servers != nil && p.Devices(g).Widest >= g.Least {
			return noServer(p.s, g), true
		}
		return p.tooFew(g), true
	}
	return train.Reason{}, false
}

// offered says whether any node on which a gang may start suits it.
func (p *Spaces) offered(g *cluster.Gang) bool {
	return len(g.OnlyNodes) == 0 || slices.ContainsFunc(p.s.Nodes, func(n cluster.Node) bool { return suits(g, &n) })
}

// labelled says whether any node has the labels that a gang asks for.
func labelled(s *cluster.Snapshot, g *cluster.Gang) bool {
	return len(g.Spec.NodeLabels) == 0 || slices.ContainsFunc(s.Nodes, func(n cluster.Node) bool { return n.Spec.Has(g.Spec.NodeLabels) })
}

// noServer is the reason of a gang that would find devices if it needed no parameter server.
func noServer(s *cluster.Snapshot, g *cluster.Gang) train.Reason {
	cores, ram := 0, int64(0)
	for i := range s.Nodes {
		if n := &s.Nodes[i]; g.Suits(n) {
			cores, ram = max(cores, n.Cores), max(ram, n.RAM)
		}
	}
	r := train.Reason{Code: DevicesTooFew, Hint: "lower what a parameter server needs"}
	switch {
	case g.Servers.Cores > cores:
		r.Message = fmt.Sprintf("needs %s, and the largest node%s has %s", cluster.ServerWords(g), Selector(g), cluster.Cores(cores))
	case g.Servers.MemoryMiB<<20 > ram:
		r.Message = fmt.Sprintf("needs %s, and the largest node%s has %s", cluster.ServerWords(g), Selector(g), unit.Bytes(ram))
	default:
		r.Message = fmt.Sprintf("needs %s and %s, and no node%s has room for the server beside its workers", g.Asks(), cluster.ServerWords(g), Selector(g))
		r.Hint = "lower min_devices or what a parameter server needs"
	}
	return r
}

// The codes of what is never feasible.
const (
	NoNode        = "NoNode"
	NoSuchDevice  = "NoSuchDevice"
	DevicesTooFew = "DevicesTooFew"
	LinkDegraded  = "LinkDegraded"
	MixedNode     = "MixedNode"
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
			all[n.Model+n.Realm] += n.Room()
			together[n.Model+n.Island] += n.Room()
			whole, widest = max(whole, all[n.Model+n.Realm]), max(widest, together[n.Model+n.Island])
		}
	}
	if whole < g.Least || widest >= g.Least {
		return train.Reason{}, false
	}
	return train.Reason{
		Code:    LinkDegraded,
		Message: fmt.Sprintf("needs %s on nodes between which packets arrive, and there are %d: %s", g.Asks(), widest, cluster.LossWords(bad)),
		Hint:    "`switchyard net status` shows the links",
	}, true
}

// tooFew is the reason of a gang that needs more devices in one place than there are.
func (p *Spaces) tooFew(g *cluster.Gang) train.Reason {
	s, where, widest := p.s, " on one node", "the largest has"
	if s.Spans {
		where, widest = "", "there are"
	}
	most := s.Widest(cluster.AnyNode)
	if s.Spans && slices.ContainsFunc(s.Nodes, func(n cluster.Node) bool { return n.Model != s.Nodes[0].Model }) {
		where = " of one model"
	}
	if s.Tuning.OneRealm {
		where += " on nodes that one executor serves"
	}
	r := train.Reason{
		Code: DevicesTooFew, Message: fmt.Sprintf("needs %s%s, and %s %d", g.Asks(), where, widest, most),
		Hint: "lower min_devices or add devices",
	}
	if at, apart, mixed := s.Mixed(g); mixed {
		how := "all of its devices together"
		if apart {
			how = "only one of its kinds of devices"
		}
		return train.Reason{Code: MixedNode, Message: fmt.Sprintf("needs %s%s, and a job ahead of it wants %s of node %s", g.Asks(), where, how, at)}
	}
	switch cores := p.mostCores(g); {
	case 0 < cores && cores < g.Spec.Cores:
		r.Message = fmt.Sprintf("needs %s for each process, and the largest node%s has %d", cluster.Cores(g.Spec.Cores), Selector(g), cores)
		r.Hint = "lower cores"
	case g.RAM > 0 && s.Widest(func(n *cluster.Node) bool { return suits(g, n) }) >= g.Least:
		r.Message = fmt.Sprintf("needs %s%s%s, and the largest node has %s of main memory", Wants(g), where, Selector(g), p.largestRAM(g))
		r.Hint = "lower memory or min_devices"
	case g.Need.Chosen():
		if lacks := g.Need.Lacks(p.labelled(g)); lacks != "" {
			return train.Reason{Code: NoSuchDevice, Message: fmt.Sprintf("needs %s%s, and %s", g.Asks(), Selector(g), lacks), Hint: "add such a device, or ask for less"}
		}
		r.Message = fmt.Sprintf("needs %s%s%s, and %s %d", g.Asks(), where, Selector(g), widest, s.Widest(g.Suits))
	case most < g.Least:
	case len(g.Spec.NodeLabels) > 0:
		r.Message = fmt.Sprintf("needs %s%s%s, and there are fewer", g.Asks(), where, Selector(g))
		r.Hint = "lower min_devices or what is asked of the node"
	default:
		r.Message = fmt.Sprintf("needs %s of %s each%s, and no node has them", g.Asks(), g.Spec.EstimatedMemory(), where)
		r.Hint = "lower min_devices or estimated_memory_mib"
	}
	return r
}

// Wants says in words what a gang needs at least: its devices, and the main memory of its processes.
func Wants(g *cluster.Gang) string {
	switch {
	case g.RAM == 0:
		return g.Asks()
	case g.EachDevice && g.Least > 1:
		return fmt.Sprintf("%s and %s of main memory for each", g.Asks(), unit.Bytes(g.RAM))
	}
	return fmt.Sprintf("%s and %s of main memory", g.Asks(), unit.Bytes(g.RAM))
}

// mostCores is the most cores of a node with the labels and devices that a gang asks for. A node that does not report
// its cores may have any number.
func (p *Spaces) mostCores(g *cluster.Gang) int {
	most := 0
	for i := range p.s.Nodes {
		if n := &p.s.Nodes[i]; suits(g, n) {
			most = max(most, cmp.Or(n.Spec.Cores, math.MaxInt32))
		}
	}
	return most
}

// largestRAM is the most main memory of a node with the labels and devices that a gang asks for.
func (p *Spaces) largestRAM(g *cluster.Gang) unit.Bytes {
	most := int64(0)
	for i := range p.s.Nodes {
		if n := &p.s.Nodes[i]; suits(g, n) {
			most = max(most, n.RAM)
		}
	}
	return unit.Bytes(most)
}

// labelled are the nodes with the labels that a gang asks for.
func (p *Spaces) labelled(g *cluster.Gang) []train.Node {
	var nodes []train.Node
	for i := range p.s.Nodes {
		if n := p.s.Nodes[i].Spec; n.Has(g.Spec.NodeLabels) {
			nodes = append(nodes, *n)
		}
	}
	return nodes
}
