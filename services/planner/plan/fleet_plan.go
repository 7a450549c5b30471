package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The codes of gangs that go on with another number of devices.
const (
	ReasonGrew   = "Grew"
	ReasonShrunk = "Shrunk"
)

// granter is a policy whose gangs may span nodes.
type granter interface {
	Name() string
	// grant gives each gang its shares.
	grant(f *fleet)
}

// allot decides with a granter.
func allot(s State, p granter) train.Plan {
	f := newFleet(s)
	p.grant(f)
	return f.plan(p.Name())
}

// plan names the devices of all shares and gives each job its reason.
func (f *fleet) plan(policy string) train.Plan {
	made := train.Plan{Policy: policy, Allocations: []train.Allocation{}, Memory: f.memory}
	all := slices.Concat(f.pinned, f.gangs)
	parts := f.name(all)
	for i, g := range all {
		if len(g.got) == 0 {
			made.Waiting = append(made.Waiting, train.Waiting{Job: g.ID, Blockers: []train.Reason{f.blocker(g)}})
			continue
		}
		a := train.Allocation{Job: g.ID, Reason: f.reason(g), Batch: g.batch}
		if len(parts[i]) == 1 {
			a.Node, a.Devices = parts[i][0].Node, parts[i][0].Devices
		} else {
			a.Parts = parts[i]
		}
		made.Allocations = append(made.Allocations, a)
	}
	slices.SortFunc(made.Allocations, func(x, y train.Allocation) int { return cmp.Compare(x.Job, y.Job) })
	return made
}

// name settles which devices of each node a gang gets: first those that it holds there, then the free ones in order.
func (f *fleet) name(gangs []*gang) [][]train.Part {
	taken := make([][]bool, len(f.nodes))
	for i := range f.nodes {
		taken[i] = make([]bool, len(f.nodes[i].devices))
	}
	parts := make([][]train.Part, len(gangs))
	for i, g := range gangs {
		parts[i] = make([]train.Part, len(g.got))
		for k, s := range g.got {
			parts[i][k] = train.Part{Node: f.nodes[s.node].id, Devices: make([]train.DeviceID, 0, s.devices)}
			for _, id := range g.holds(f.nodes[s.node].id) {
				d := f.nodes[s.node].find(id)
				if d >= 0 && !taken[s.node][d] && len(parts[i][k].Devices) < s.devices {
					taken[s.node][d] = true
					parts[i][k].Devices = append(parts[i][k].Devices, id)
				}
			}
		}
	}
	for i, g := range gangs {
		for k, s := range g.got {
			p := &parts[i][k]
			for d := 0; len(p.Devices) < s.devices; d++ {
				if !taken[s.node][d] {
					taken[s.node][d] = true
					p.Devices = append(p.Devices, f.nodes[s.node].devices[d].ID)
				}
			}
		}
	}
	return parts
}

// holds are the devices of a node that the job holds.
func (g *gang) holds(node train.NodeID) []train.DeviceID {
	if g.Planned == nil && g.Running == nil || len(g.held) == 0 {
		return nil
	}
	h := g.Planned
	if h == nil || g.Running != nil && !g.Running.Spoke {
		h = &g.Running.Holding
	}
	for _, p := range h.places() {
		if p.Node == node {
			return p.Devices
		}
	}
	return nil
}

// reason says why a gang gets what it gets.
func (f *fleet) reason(g *gang) train.Reason {
	had, has := width(g.held), width(g.got)
	where := fmt.Sprintf("%s on %d nodes", devices(has), len(g.got))
	if len(g.got) == 1 {
		where = devices(has) + " of node " + string(f.nodes[g.got[0].node].id)
	}
	switch {
	case had == 0:
		return train.Reason{Code: ReasonPlaced, Message: "gets " + where}
	case slices.Equal(g.held, g.got):
		return train.Reason{Code: ReasonKept, Message: "keeps " + where}
	case has > had:
		return train.Reason{Code: ReasonGrew, Message: fmt.Sprintf("gets %s instead of %d", where, had)}
	case has < had:
		return train.Reason{Code: ReasonShrunk, Message: fmt.Sprintf("gets %s instead of %d", where, had)}
	}
	return train.Reason{Code: ReasonMoved, Message: "goes on with " + where}
}

// blocker says why a gang waits.
func (f *fleet) blocker(g *gang) train.Reason {
	if wanted := g.wanted(); wanted > f.total {
		return train.Reason{Code: ReasonDevicesTooFew, Message: fmt.Sprintf("needs %s, and there are %d", devices(wanted), f.total), Hint: "add devices"}
	}
	return train.Reason{Code: ReasonWaitingForDevices, Message: fmt.Sprintf("needs %s, %d free", devices(g.wanted()), f.free)}
}
