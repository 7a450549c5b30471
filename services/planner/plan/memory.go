package plan

import (
	"encoding/json"

	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// memory is what a plan leaves to the next decision: a fingerprint of its state with the plan applied, by which the
// next one sees that there is no news, and what the policy wants to find again.
type memory struct {
	News   uint64          `json:"news"`
	Policy json.RawMessage `json:"policy,omitempty"`
	// Chapters is what the policy switchyard left before memories had this form.
	Chapters json.RawMessage `json:"chapters,omitempty"`
	// before is a memory in another form, of a policy of its own.
	before string
}

func readMemory(text string) memory {
	m := memory{}
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.Policy == nil && m.Chapters == nil && m.News == 0 {
		return memory{before: text}
	}
	if m.Chapters != nil { // its fingerprint was another one
		return memory{before: text}
	}
	return m
}

// policy returns what the policy stored.
func (m memory) policy() string {
	if m.before != "" {
		return m.before
	}
	return string(m.Policy)
}

// remember is the memory of the finished plan.
func (d *decision) remember() string {
	left := json.RawMessage(d.left)
	if !json.Valid(left) {
		left = nil
	}
	if d.plain && left == nil {
		return ""
	}
	m := memory{News: d.fingerprint(func(g *cluster.Gang) cluster.Placement { return g.Got }), Policy: left}
	text, err := json.Marshal(m)
	if err != nil {
		return ""
	}
	return string(text)
}

// planned returns the placement of a gang in the last plan.
func (d *decision) planned(g *cluster.Gang) cluster.Placement {
	p, _ := d.Locate(g.Planned)
	return p
}
