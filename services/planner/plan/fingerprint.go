package plan

import (
	"encoding/binary"
	"maps"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
)

// fingerprint is a digest of all that a decision rests on, with what each gang holds, or is to hold. In place of times
// it has the answers to what a decision asks of them: who is deferred, starved or late for its deadline, which slow
// devices still count, and how far an attempt may be changed.
func (d *decision) fingerprint(holds func(*cluster.Gang) cluster.Placement) uint64 {
	if d.basis == 0 {
		d.basis = d.digestBasis()
	}
	b := d.basis
	for _, g := range d.Gangs {
		b.holding(d, g, holds(g))
	}
	return uint64(b)
}

// digestBasis digests what stays the same during a decision: everything except what gangs hold.
func (d *decision) digestBasis() digest {
	s, b := d.State, new(digest)
	b.words(d.policy.Name())
	b.add(s.PowerBudgetWatts, s.IntervalSeconds)
	b.value(reflect.ValueOf(d.Tuning))
	b.value(reflect.ValueOf(s.Quotas))
	b.value(reflect.ValueOf(s.Links))
	for n := range d.Whole() { // that an attempt has left a device which nobody may have is no news
		b.node(n)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Interference)) {
		b.words(key)
		b.value(reflect.ValueOf(s.Interference[key].Samples()))
	}
	for i := range s.Exclusions {
		e := &s.Exclusions[i]
		b.words(string(e.Node), string(e.Job), e.Reason.Code)
		b.value(reflect.ValueOf(e.Devices))
		b.is(e.Leave, e.Now)
	}
	for _, g := range d.Deferred {
		b.words(string(g.ID))
	}
	for _, g := range d.Gangs {
		b.job(g.Job)
		b.spec(&g.Spec)
		b.add(g.Overuse)
		b.value(reflect.ValueOf(g.Slow))
		if g.Shares() {
			b.value(reflect.ValueOf(g.Kind()))
		}
		deadline := g.Spec.Deadline
		b.is(d.Age(g)-g.RunSeconds > d.Tuning.StarvationSeconds, deadline != nil && s.Now.After(*deadline))
	}
	return *b
}

// digest is a running hash of numbers, the same on every machine.
type digest uint64

func (b *digest) word(x uint64) {
	const odd = 0x9e3779b97f4a7c15
	high, low := bits.Mul64(uint64(*b)^x^odd, odd)
	*b = digest(bits.RotateLeft64(high^low, 23) + x)
}

func (b *digest) add(numbers ...float64) {
	for _, x := range numbers {
		b.word(math.Float64bits(x))
	}
}

func (b *digest) ints(numbers ...int) {
	for _, x := range numbers {
		b.word(uint64(x))
	}
}

func (b *digest) words(words ...string) {
	for _, w := range words {
		if len(w) >= 8 {
			b.word(1<<63 | uint64(len(w)))
		}
		for ; len(w) >= 8; w = w[8:] {
			b.word(binary.LittleEndian.Uint64([]byte(w[:8])))
		}
		rest := uint64(len(w))
		for i := range len(w) {
			rest = rest<<8 | uint64(w[i])
		}
		b.word(rest)
	}
}

func (b *digest) is(answers ...bool) {
	for _, yes := range answers {
		answer := uint64(0)
		if yes {
			answer = 1
		}
		b.word(answer)
	}
}

func (b *digest) node(n *cluster.Node) {
	b.words(string(n.ID))
	b.ints(len(n.Devices), n.Cores, int(n.RAM))
	if len(n.Spec.Labels) > 0 {
		b.value(reflect.ValueOf(n.Spec.Labels))
	}
	for i := range n.Devices {
		d := &n.Devices[i]
		b.words(string(d.ID), string(d.Kind), d.Model, d.Driver, string(d.Enforcement))
		b.ints(int(d.Memory), d.Units)
		b.add(d.IdleWatts, d.BusyWatts)
		b.is(d.Simulated)
	}
}

// job adds what the planner knows of a job besides its attempt and its plan.
func (b *digest) job(j *Job) {
	b.words(string(j.ID))
	b.ints(j.Priority, int(j.SubmittedAt.UnixNano()), j.EpochsDone, j.WantsDevices, j.BatchDevices)
	b.is(j.Outgrown)
	for _, id := range j.OnlyNodes {
		b.words(string(id))
	}
	b.value(reflect.ValueOf(j.Model))
}

// spec adds the parts of the user's request that the planner reads.
func (b *digest) spec(s *train.Spec) {
	b.words(s.Tenant, s.Family, string(s.Strategy))
	b.ints(s.BatchSize, s.GlobalBatchSize, s.TrainingSetSize, s.MaxEpochs, s.MaxSteps, s.MinDevices, s.MaxDevices, int(s.EstimatedMemoryMiB), s.Cores, int(s.MainMemoryMiB))
	b.add(s.EstimatedHours)
	b.is(s.BatchPerDevice, s.SingleDevice, s.AllowSharing, s.DisableSharing, s.ShareAcrossTenants)
	if s.TimeLimit > 0 {
		b.add(s.TimeLimit.Seconds())
	}
	if s.Device != "" || s.GPU != "" {
		b.words(string(s.Device), s.GPU)
	}
	for _, of := range [...]any{s.AdaptiveBatch, s.Stop, s.NodeLabels, s.Deadline, s.ParameterServers, s.Energy} {
		b.value(reflect.ValueOf(of))
	}
}

// value adds all of a value that can be written down.
func (b *digest) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		b.is(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		b.word(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		b.word(v.Uint())
	case reflect.Float32, reflect.Float64:
		b.add(v.Float())
	case reflect.String:
		b.words(v.String())
	case reflect.Pointer, reflect.Interface:
		if b.is(v.IsNil()); !v.IsNil() {
			b.value(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		b.ints(v.Len())
		for i := range v.Len() {
			b.value(v.Index(i))
		}
	case reflect.Map:
		b.ints(v.Len())
		keys := v.MapKeys()
		slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
		for _, key := range keys {
			b.words(key.String())
			b.value(v.MapIndex(key))
		}
	case reflect.Struct:
		if at, is := reflect.TypeAssert[time.Time](v); is {
			b.word(uint64(at.UnixNano()))
			return
		}
		for _, field := range v.Fields() {
			b.value(field)
		}
	default: // A function cannot be written down, and decides nothing.
	}
}

// holding adds what a gang holds. That its attempt can be asked to leave is news, too, if it goes on as it is.
func (b *digest) holding(d *decision, g *cluster.Gang, p cluster.Placement) {
	b.ints(len(p.Parts), int(p.Memory), d.openness(g, p))
	for i := range p.Parts {
		part := &p.Parts[i]
		n := &d.Nodes[part.Node]
		b.words(string(n.ID)) // places among devices change when a closed one is left
		b.ints(part.Servers, len(part.Devices))
		for _, at := range part.Devices {
			b.words(string(n.Devices[at].ID))
		}
	}
}

// openness says how far a gang that runs as planned may be changed: not at all, for a higher priority, or at will. If
// jobs leave at any time, all may.
func (d *decision) openness(g *cluster.Gang, p cluster.Placement) int {
	r := g.Running
	if r == nil || g.Stuck() || r.StopPending || !d.Tuning.AtEpochs {
		return 0
	}
	on, ok := d.Locate(&r.Holding)
	switch {
	case !ok || !on.SameDevices(p) || !on.SameShape(p) || on.Memory != p.Memory:
		return 0
	case g.Measured() && r.Seconds >= d.Tuning.MinRescaleSeconds && g.RecentRestarts < d.Tuning.MaxRestartsPerHour:
		return 2
	}
	return 1
}
