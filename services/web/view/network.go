package view

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// NetStatus is what probes say about the network.
type NetStatus struct {
	// Nodes counts the nodes that probe, Flows the probed paths, ProbedLinks the links on these paths.
	Nodes       int `json:"nodes"`
	Flows       int `json:"flows"`
	ProbedLinks int `json:"probed_links"`
	// Links are those that lose or delay packets, or did so within the last hour, the worst first.
	Links []NetLink `json:"links"`
	// Ailing are the nodes whose probes did not count in the last window, which ended at JudgedAt.
	Ailing   []train.UnhealthyNode `json:"ailing"`
	JudgedAt *time.Time            `json:"judged_at,omitempty"`
}

// NetLink is a link with the number of probed paths over it.
type NetLink struct {
	train.Link
	// Flows is that number.
	Flows int `json:"flows"`
}

// newNetStatus counts nodes, paths and links. With all it includes links that never had trouble. judged is the newest
// verdict, nil if there is none.
func newNetStatus(lists []train.Pinglist, links []train.Link, judged *event.LinksJudged, all bool) NetStatus {
	status := NetStatus{Nodes: len(lists), Links: []NetLink{}, Ailing: []train.UnhealthyNode{}}
	flows, known := map[string]int{}, map[string]train.Link{}
	for _, list := range lists {
		status.Flows += len(list.Probes)
		for _, f := range list.Probes {
			for _, l := range f.Links {
				flows[l]++
				if all {
					known[l] = train.Link{ID: l}
				}
			}
		}
	}
	status.ProbedLinks = len(flows)
	for _, l := range links {
		known[l.ID] = l
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		status.Links = append(status.Links, NetLink{known[id], flows[id]})
	}
	slices.SortStableFunc(status.Links, func(x, y NetLink) int {
		return cmp.Or(cmp.Compare(StateOf(x.Link), StateOf(y.Link)), cmp.Compare(y.Loss, x.Loss), cmp.Compare(y.DelaySeconds, x.DelaySeconds))
	})
	if judged != nil && len(lists) > 0 {
		status.JudgedAt = new(time.Unix(0, 0).UTC().Add(time.Duration(judged.Slot+1) * train.ProbeSlot))
		status.Ailing = append(status.Ailing, judged.Ailing...)
	}
	return status
}

// LinkState is the state of a link, the worst first.
type LinkState int

// The states.
const (
	LinkLossy LinkState = iota
	LinkSlow
	LinkRecovered
	LinkWell
)

// StateOf returns the state of a link.
func StateOf(l train.Link) LinkState {
	switch {
	case l.Degraded && l.Kind != train.LinkIsSlow:
		return LinkLossy
	case l.Degraded:
		return LinkSlow
	case !l.Since.IsZero():
		return LinkRecovered
	}
	return LinkWell
}

// seenNetwork returns the paths of all probes, and the states of the links on them.
func seenNetwork(lists []train.Pinglist, links []train.Link) ([]fabric.Seen, map[fabric.LinkID]fabric.State) {
	ways := []fabric.Seen{}
	states := map[fabric.LinkID]fabric.State{}
	for _, list := range lists {
		for _, f := range list.Probes {
			way := fabric.Seen{From: string(f.From), To: string(f.To)}
			for _, l := range f.Links {
				way.Links = append(way.Links, fabric.LinkID(l))
				states[fabric.LinkID(l)] = fabric.State{}
			}
			ways = append(ways, way)
		}
	}
	for _, l := range links {
		if l.Degraded {
			states[fabric.LinkID(l.ID)] = fabric.State{Loss: l.Loss, DelaySeconds: l.DelaySeconds}
		}
	}
	return ways, states
}

// Probed is what probes say about the network, whole: with links that never had trouble.
type Probed struct {
	NetStatus
	// Ways are the probed paths.
	Ways []fabric.Seen `json:"ways"`
}

// NewProbed puts that together.
func NewProbed(lists []train.Pinglist, links []train.Link, judged *event.LinksJudged) Probed {
	ways, _ := seenNetwork(lists, links)
	return Probed{newNetStatus(lists, links, judged, true), ways}
}

// Troubled returns the status without links that never had trouble.
func (p Probed) Troubled() NetStatus {
	s := p.NetStatus
	s.Links = slices.DeleteFunc(slices.Clone(s.Links), func(l NetLink) bool { return StateOf(l.Link) == LinkWell })
	return s
}

// States returns the states of the links, by their ids.
func (p Probed) States() map[fabric.LinkID]fabric.State {
	states := map[fabric.LinkID]fabric.State{}
	for _, l := range p.Links {
		states[fabric.LinkID(l.ID)] = fabric.State{}
		if l.Degraded {
			states[fabric.LinkID(l.ID)] = fabric.State{Loss: l.Loss, DelaySeconds: l.DelaySeconds}
		}
	}
	return states
}

// Network is the network as probes show it, and what follows from bad links.
type Network struct {
	NetStatus
	// Vertices are the nodes and switches of the probed paths, Edges the links between them. They are left out if there
	// are too many to draw.
	Vertices []NetVertex `json:"vertices"`
	Edges    []NetEdge   `json:"edges"`
	// KeptOff are the jobs that wait or go on elsewhere because of bad links.
	KeptOff []KeptOff `json:"kept_off"`
}

// NetVertex is a node or a switch.
type NetVertex struct {
	// Name is its name, Tier its level above the nodes, from 0.
	Name string      `json:"name"`
	Tier fabric.Tier `json:"tier"`
}

// NetEdge is a link between two vertices, by their indices.
type NetEdge struct {
	ID fabric.LinkID `json:"id"`
	// A and B are its ends.
	A int `json:"a"`
	B int `json:"b"`
	// Loss and DelaySeconds are those of its worse direction; 0 for a healthy link.
	Loss         float64 `json:"loss_ratio,omitempty"`
	DelaySeconds float64 `json:"delay_seconds,omitempty"`
}

// KeptOff is a job that is kept off bad links.
type KeptOff struct {
	// Job is its id.
	Job train.JobID `json:"job"`
	// Waits is set if it waits for that reason.
	Waits bool `json:"waits,omitempty"`
	// Reason is the plan's.
	Reason train.Reason `json:"reason"`
}

// mostDrawn is the largest number of links that a page draws.
const mostDrawn = 2000

// linkDegraded is the code of the plan's reason.
const linkDegraded = "LinkDegraded"

// NewNetwork puts the network together.
func NewNetwork(lists []train.Pinglist, links []train.Link, judged *event.LinksJudged, plan *train.Plan) Network {
	n := Network{NetStatus: newNetStatus(lists, links, judged, false), Vertices: []NetVertex{}, Edges: []NetEdge{}, KeptOff: []KeptOff{}}
	ways, states := seenNetwork(lists, links)
	if t := fabric.FromSeen(ways); len(t.Links) <= mostDrawn {
		for _, v := range t.Vertices {
			n.Vertices = append(n.Vertices, NetVertex{v.Name, v.Tier})
		}
		for i, l := range t.Links {
			worst, _ := t.Worst(i, states)
			n.Edges = append(n.Edges, NetEdge{ID: l.ID, A: l.A, B: l.B, Loss: worst.Loss, DelaySeconds: worst.DelaySeconds})
		}
	}
	for _, a := range plan.Allocations {
		if a.Reason.Code == linkDegraded {
			n.KeptOff = append(n.KeptOff, KeptOff{Job: a.Job, Reason: a.Reason})
		}
	}
	for _, w := range plan.Waiting {
		if i := slices.IndexFunc(w.Blockers, func(r train.Reason) bool { return r.Code == linkDegraded }); i >= 0 {
			n.KeptOff = append(n.KeptOff, KeptOff{Job: w.Job, Waits: true, Reason: w.Blockers[i]})
		}
	}
	return n
}
