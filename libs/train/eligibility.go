package train

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Eligibility is what keeps jobs off a node besides its own state: the orders of operators, and what the planner has
// set aside after losses.
type Eligibility struct {
	// Orders are in force until they are taken back, by device. WholeNode stands for all devices.
	Orders map[DeviceID]NodeOrder `json:"orders,omitempty"`
	// Aside is what is set aside, by device, until its time is over or an operator resumes it.
	Aside map[DeviceID]Aside `json:"aside,omitempty"`
	// Losses are the latest attempts that were lost there through no fault of their own, in the order of their ends.
	Losses []NodeLoss `json:"losses,omitempty"`
	// Resumed is when an operator last resumed the node or a device of it: losses before that do not count.
	Resumed time.Time `json:"resumed,omitzero"`
	// Sequence is the place in the stream of the newest request that the record follows.
	Sequence uint64 `json:"sequence,omitempty"`
}

// WholeNode stands for all devices of a node.
const WholeNode = ""

// NodeOrder is an operator's order to keep jobs off a node or a device.
type NodeOrder struct {
	// Drain is set if the jobs there are to leave at their next save; otherwise they stay until they end.
	Drain bool `json:"drain,omitempty"`
	// Now is set if those leave, too, that have saved nothing yet.
	Now bool   `json:"now,omitempty"`
	By  string `json:"by,omitempty"`
	// Why is the reason in the operator's words.
	Why string    `json:"why,omitempty"`
	At  time.Time `json:"at"`
}

// Aside says that a node or a device is set aside, since different jobs were lost there again and again.
type Aside struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Why names the losses.
	Why string `json:"why"`
}

// NodeLoss is an attempt that was lost on a node.
type NodeLoss struct {
	Job     JobID      `json:"job"`
	Attempt int        `json:"attempt"`
	Devices []DeviceID `json:"devices,omitempty"`
	// ClaimedAt is when the attempt began, At when it ended.
	ClaimedAt time.Time `json:"claimed_at,omitzero"`
	At        time.Time `json:"at"`
	// How says how it ended, in a few words.
	How string `json:"how,omitempty"`
}

// Same reports whether two losses are of one attempt, whose processes may run on several nodes.
func (l NodeLoss) Same(o NodeLoss) bool { return l.Job == o.Job && l.Attempt == o.Attempt }

// NodeCondition is what the cluster manager of a node says of it.
type NodeCondition struct {
	// Cordoned is set if the manager starts nothing new there.
	Cordoned bool `json:"cordoned,omitempty"`
	// Taints are those that pods of jobs do not tolerate, as key=value:effect.
	Taints []string `json:"taints,omitempty"`
	// NotReady says why the node is not ready; empty if it is.
	NotReady string `json:"not_ready,omitempty"`
	// SeenAt is when the manager last said something new.
	SeenAt time.Time `json:"seen_at"`
}

// Exclusions returns everything that keeps jobs off a node at a time, in a fixed order: the orders of operators, what
// is set aside, what others hold, and its state as its cluster manager sees it.
func (n *Node) Exclusions(c NodeCondition, e Eligibility, now time.Time) []Exclusion {
	var all []Exclusion
	for _, d := range slices.Sorted(maps.Keys(e.Orders)) {
		all = append(all, e.Orders[d].exclusion(n.ID, d))
	}
	for _, d := range slices.Sorted(maps.Keys(e.Aside)) {
		if a := e.Aside[d]; now.Before(a.Until) {
			all = append(all, a.exclusion(n.ID, d))
		}
	}
	for i := range n.Devices {
		if d := &n.Devices[i]; d.HeldBy != "" {
			all = append(all, Exclusion{Node: n.ID, Devices: []DeviceID{d.ID}, Reason: Reason{
				Code: DeviceHeld, Message: fmt.Sprintf("%s is held by %s", deviceOf(n.ID, d.ID), d.HeldBy), Hint: "it comes free when that ends",
			}})
		}
	}
	return append(all, c.exclusions(n.ID)...)
}

func (a Aside) exclusion(id NodeID, d DeviceID) Exclusion {
	e := Exclusion{Node: id, Until: a.Until, Reason: Reason{
		Code:    NodeSetAside,
		Message: fmt.Sprintf("%s is set aside until %s: %s", deviceOf(id, d), a.Until.UTC().Format("15:04:05 MST"), a.Why),
		Hint:    "look at the node; " + resumeHint(id, d),
	}}
	if d != WholeNode {
		e.Devices = []DeviceID{d}
	}
	return e
}

func (c NodeCondition) exclusions(id NodeID) []Exclusion {
	var all []Exclusion
	add := func(code, message, hint string) {
		all = append(all, Exclusion{Node: id, Reason: Reason{Code: code, Message: message, Hint: hint}})
	}
	if c.NotReady != "" {
		add(NodeNotReady, fmt.Sprintf("node %s is not ready: %s", id, c.NotReady), "look at the node: `kubectl describe node`")
	}
	if c.Cordoned {
		add(NodeCordoned, fmt.Sprintf("node %s is cordoned in Kubernetes", id), "`kubectl uncordon` ends that")
	}
	if len(c.Taints) > 0 {
		add(NodeTainted, fmt.Sprintf("node %s has taints that jobs do not tolerate: %s", id, strings.Join(c.Taints, ", ")),
			"remove the taint, or ask the operator for another executor.pod_tolerate")
	}
	return all
}

func (o NodeOrder) exclusion(id NodeID, d DeviceID) Exclusion {
	e := Exclusion{Node: id, Leave: o.Drain, Now: o.Drain && o.Now, Reason: Reason{Code: NodeCordoned, Hint: resumeHint(id, d)}}
	state := "cordoned"
	if o.Drain {
		e.Reason.Code, state = NodeDraining, "being drained"
	}
	if d != WholeNode {
		e.Devices = []DeviceID{d}
	}
	e.Reason.Message = fmt.Sprintf("%s is %s by %s", deviceOf(id, d), state, cmp.Or(o.By, "an operator"))
	if o.Why != "" {
		e.Reason.Message += ": " + o.Why
	}
	return e
}

// The time for which a job keeps off a node where it did not start grows with each such start in a row.
const (
	firstUnstarted   = 30 * time.Second
	longestUnstarted = 30 * time.Minute
)

// Forbidden is the code of a start that a quota or limit of the cluster manager forbids: the node is not to blame.
const Forbidden = "Forbidden"

// Unstarted returns what keeps the job of an attempt off its nodes since not all of its processes ever ran there.
func (a *Attempt) Unstarted(now time.Time) []Exclusion {
	if a.Phase != PhaseExited || a.Exit == nil || !a.Exit.Unstarted || a.Exit.Reason.Code == Forbidden {
		return nil
	}
	const doublings = 10
	wait, code := min(firstUnstarted<<min(a.UnstartedInARow, doublings), longestUnstarted), StartFailed
	if a.Exit.Reason.Code == DiskFull {
		wait, code = firstUnstarted, DiskFull // an operator is about to make room, and to look costs nothing
	}
	until := a.ExitedAt.Add(wait)
	if !now.Before(until) {
		return nil
	}
	var all []Exclusion
	for _, p := range a.Places() {
		all = append(all, Exclusion{Node: p.Node, Job: a.Job, Until: until, Reason: Reason{
			Code: code, Message: fmt.Sprintf("its last start on node %s failed: %s", p.Node, cmp.Or(a.Exit.Reason.Message, "not all processes ran")),
			Hint: "it is tried there again at " + until.UTC().Format("15:04:05 MST"),
		}})
	}
	return all
}

// deviceOf names a device, or the whole node.
func deviceOf(id NodeID, d DeviceID) string {
	if d == WholeNode {
		return "node " + string(id)
	}
	return fmt.Sprintf("%s of node %s", d, id)
}

func resumeHint(id NodeID, d DeviceID) string {
	if d == WholeNode {
		return fmt.Sprintf("`switchyard node resume %s` ends that", id)
	}
	return fmt.Sprintf("`switchyard node resume %s --device %s` ends that", id, d)
}

// Exclusion keeps jobs off a node, or off some of its devices, until it ends.
type Exclusion struct {
	Node NodeID `json:"node"`
	// Devices are the devices that it is about; empty for the whole node.
	Devices []DeviceID `json:"devices,omitempty"`
	// Job is set if it keeps only this job off; it is about the whole node then.
	Job JobID `json:"job,omitempty"`
	// Reason says why, as a sentence, with what ends it as the hint.
	Reason Reason `json:"reason"`
	// Leave is set if jobs that run there leave at their next save; otherwise they stay as they are.
	Leave bool `json:"leave,omitempty"`
	// Now is set if those leave, too, that would lose all their work.
	Now bool `json:"now,omitempty"`
	// Until is when time ends it; zero if only an event does.
	Until time.Time `json:"until,omitzero"`
}

// Covers reports whether the exclusion is about a device of its node.
func (e *Exclusion) Covers(d DeviceID) bool {
	return len(e.Devices) == 0 || slices.Contains(e.Devices, d)
}

// Concerns reports whether the exclusion keeps a job off.
func (e *Exclusion) Concerns(job JobID) bool { return e.Job == "" || e.Job == job }

// The codes of the reasons of exclusions.
const (
	NodeSilent   = "NodeSilent"
	NodeCordoned = "NodeCordoned"
	NodeDraining = "NodeDraining"
	NodeTainted  = "NodeTainted"
	NodeNotReady = "NodeNotReady"
	NodeSetAside = "NodeSetAside"
	DeviceHeld   = "DeviceHeld"
	StartFailed  = "StartFailed"
	// NodeNotOffered: the scheduler of the cluster would not start the pod there.
	NodeNotOffered = "NodeNotOffered"
)
