package plan

import (
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"maps"
	"math"
	"slices"

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

// policy is what the policy has left.
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

// planned is what the last plan gave to a gang.
func (d *decision) planned(g *cluster.Gang) cluster.Placement {
	p, _ := d.Locate(g.Planned)
	return p
}

// fingerprint is a digest of all that a decision rests on besides the time, with what each gang holds, or is to hold.
func (d *decision) fingerprint(holds func(*cluster.Gang) cluster.Placement) uint64 {
	b := digest{}
	s := d.State
	b.add(s.PowerBudgetWatts, d.Tuning.EnergyWeight, d.Tuning.FairnessBound, d.Tuning.StarvationSeconds, float64(len(d.Deferred)))
	b.words(d.policy.Name())
	for _, tenant := range slices.Sorted(maps.Keys(s.Quotas)) {
		b.words(tenant)
		b.add(float64(s.Quotas[tenant]))
	}
	for i := range d.Nodes {
		n := &d.Nodes[i]
		b.words(string(n.ID), n.Model, n.Class, n.Island)
		b.add(float64(len(n.Devices)), float64(n.Memory), n.Watts, float64(n.Cores), float64(n.RAM), bit(n.Silent), bit(n.Shared))
	}
	for _, l := range s.Links {
		b.words(l.ID)
		b.add(l.Loss, l.DelaySeconds)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Interference)) {
		b.words(key)
		for _, e := range s.Interference[key].Samples() {
			b.words(e.Self.Family, e.Beside.Family)
			b.add(e.Rate, float64(e.Count), bit(e.OutOfMemory))
		}
	}
	for _, g := range d.Gangs {
		b.gang(g)
		b.holding(d, g, holds(g))
	}
	h := fnv.New64a()
	_, _ = h.Write(b.bytes) // never fails
	return h.Sum64()
}

type digest struct{ bytes []byte }

func (b *digest) add(numbers ...float64) {
	for _, x := range numbers {
		b.bytes = binary.LittleEndian.AppendUint64(b.bytes, math.Float64bits(x))
	}
}

func (b *digest) words(words ...string) {
	for _, w := range words {
		b.bytes = append(append(b.bytes, w...), 0)
	}
}

func bit(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// gang adds what the planner knows about a job.
func (b *digest) gang(g *cluster.Gang) {
	b.words(string(g.ID))
	b.add(g.Progress(), float64(g.EpochsDone), float64(len(g.Ran())), float64(g.Spec.MaxEpochs), float64(g.Spec.MaxDevices), float64(g.Priority),
		float64(g.WantsDevices), float64(g.BatchDevices), float64(g.Spec.EstimatedMemoryMiB), bit(g.Outgrown), float64(len(g.Job.Slow)))
	if n := g.Noise(); n != nil {
		b.add(n.Variance, n.Square)
	}
	if m := g.Model; m != nil {
		b.add(float64(m.EpochsSeen), m.StepsSeen, m.EpochSeconds, float64(len(m.Speed.Measured)))
	}
}

// holding adds what a gang holds. That its attempt can be asked to leave is news, too, if it goes on as it is.
func (b *digest) holding(d *decision, g *cluster.Gang, p cluster.Placement) {
	if p.Empty() {
		b.add(0)
		return
	}
	b.add(float64(len(p.Parts)), float64(p.Memory), d.openness(g, p))
	for _, part := range p.Parts {
		b.add(float64(part.Node), float64(part.Servers))
		for _, at := range part.Devices {
			b.add(float64(at))
		}
	}
}

// openness says how far a gang that runs as planned may be changed: not at all, for a higher priority, or at will. If
// jobs leave at any time, all may.
func (d *decision) openness(g *cluster.Gang, p cluster.Placement) float64 {
	r := g.Running
	if r == nil || !r.Spoke || r.StopPending || !d.Tuning.AtEpochs {
		return 0
	}
	on, ok := d.Locate(&r.Holding)
	switch {
	case !ok || !on.SameDevices(p) || on.Memory != p.Memory:
		return 0
	case r.Epochs >= 1 && r.Seconds >= d.Tuning.MinRescaleSeconds && g.RecentRestarts < d.Tuning.MaxRestartsPerHour:
		return 2
	}
	return 1
}
