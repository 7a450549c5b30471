package state

import "github.com/switchyard-dl/switchyard/libs/train"

// Standing says who may have a device.
type Standing int

// The standings.
const (
	// Open: any job may have it.
	Open Standing = iota
	// Closed: only jobs that run on it may keep it.
	Closed
	// Gone: no job may have it.
	Gone
)

// Standings returns the devices that exclusions of all jobs keep jobs off, by node. A device is Closed while an attempt
// runs on it that may stay, or that cannot be asked to leave; otherwise it is Gone.
func (s *State) Standings() map[train.NodeID]map[train.DeviceID]Standing {
	excluded := map[train.NodeID][]*train.Exclusion{}
	for i := range s.Exclusions {
		if e := &s.Exclusions[i]; e.Job == "" {
			excluded[e.Node] = append(excluded[e.Node], e)
		}
	}
	if len(excluded) == 0 {
		return nil
	}
	stays := s.staying()
	standings := make(map[train.NodeID]map[train.DeviceID]Standing, len(excluded))
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for k := range n.Devices {
			id := n.Devices[k].ID
			off, leave := false, mayStay
			for _, e := range excluded[n.ID] {
				if e.Covers(id) {
					off, leave = true, max(leave, leaves(e))
				}
			}
			if !off {
				continue
			}
			if standings[n.ID] == nil {
				standings[n.ID] = map[train.DeviceID]Standing{}
			}
			standings[n.ID][id] = Gone
			if stay, runs := stays[place{n.ID, id}]; runs && stay >= leave {
				standings[n.ID][id] = Closed
			}
		}
	}
	return standings
}

// place is a device by name.
type place struct {
	node   train.NodeID
	device train.DeviceID
}

// stay says for how strong a reason an attempt stays where it runs. It leaves for an exclusion that is stronger.
type stay int

const (
	mayStay stay = iota
	// losesAll: it has saved nothing yet.
	losesAll
	// mustLeave is stronger than that.
	mustLeave
	// mustStay: it cannot be asked to leave.
	mustStay
)

// leaves returns which attempts an exclusion has leave: those that stay for a weaker reason.
func leaves(e *train.Exclusion) stay {
	switch {
	case e.Leave && e.Now:
		return mustLeave
	case e.Leave:
		return losesAll
	}
	return mayStay
}

// staying are the devices on which attempts run.
func (s *State) staying() map[place]stay {
	stays := map[place]stay{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Running == nil || j.CancelRequested {
			continue
		}
		for _, part := range j.Running.Places() {
			for _, id := range part.Devices {
				at, why := place{part.Node, id}, mayStay
				switch {
				case j.Running.Unasked():
					why = mustStay
				case j.WouldLoseAll(&s.Tuning):
					why = losesAll
				}
				stays[at] = max(stays[at], why)
			}
		}
	}
	return stays
}

// Offered returns the nodes with the devices that some job may have or keep.
func (s *State) Offered() []train.Node {
	standings := s.Standings()
	if standings == nil {
		return s.Nodes
	}
	var offered []train.Node
	for _, n := range s.Nodes {
		if of := standings[n.ID]; of != nil {
			var left []train.Device
			for _, d := range n.Devices {
				if of[d.ID] != Gone {
					left = append(left, d)
				}
			}
			if n.Devices = left; len(left) == 0 {
				continue
			}
		}
		offered = append(offered, n)
	}
	return offered
}
