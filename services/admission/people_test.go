package admission

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Operators change people and tenants while jobs come. Each submission gets the bounds that its sender's tenant has at
// that moment.
func TestPeopleAndTenantsAreChangedLive(t *testing.T) {
	b := newBench(t)
	b.serve()
	web := asked{b}
	web.people(event.EntityUser, "zoe", event.UserSet{Role: access.User, Tenant: "speech"})
	web.people(event.EntityTenant, "speech", event.TenantSet{Bounds: access.Bounds{Queued: new(1), Priority: new(30)}})
	decided := func(j train.Job) bool { return j.State == train.StateQueued || j.State == train.StateRejected }
	submit := func(id train.JobID, spec train.Spec) train.Job {
		t.Helper()
		spec.Name, spec.Command = "x", []string{"true"}
		fact := event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})
		fact.By = "zoe"
		if err := b.bus.Publish(b.ctx, fact); err != nil {
			t.Fatal(err)
		}
		return b.await(id, decided)
	}
	reason := func(j train.Job) string {
		if len(j.Blockers) == 0 {
			return ""
		}
		return j.Blockers[0].Code
	}
	if got := submit("high", train.Spec{Priority: new(31)}); got.State != train.StateRejected || reason(got) != "PriorityTooHigh" {
		t.Errorf("a priority over the tenant's: %s %v", got.State, got.Blockers)
	}
	if got := submit("another", train.Spec{User: "ann"}); got.State != train.StateRejected || reason(got) != "NotYourself" || got.Spec.User != "zoe" {
		t.Errorf("in another's name: %s %v, a job of %s", got.State, got.Blockers, got.Spec.User)
	}
	first := submit("first", train.Spec{})
	if s := first.Spec; first.State != train.StateQueued || s.User != "zoe" || s.Tenant != "speech" || *s.Priority != 30 {
		t.Errorf("%s of %s of %s at %d, want zoe of speech at the highest priority of her tenant", first.State, s.User, s.Tenant, *s.Priority)
	}
	if got := submit("second", train.Spec{}); got.State != train.StateRejected || reason(got) != "QueueFull" {
		t.Errorf("behind a full queue: %s %v", got.State, got.Blockers)
	}
	web.people(event.EntityTenant, "speech", event.TenantSet{Bounds: access.Bounds{Queued: new(3)}})
	if got := submit("three", train.Spec{Array: "0-2"}); got.State != train.StateRejected || reason(got) != "QueueFull" {
		t.Errorf("an array with more jobs than may wait: %s %v", got.State, got.Blockers)
	}
	if got := submit("third", train.Spec{Array: "0-1"}); got.State != train.StateQueued {
		t.Errorf("with more room: %s %v", got.State, got.Blockers)
	}
	member := b.await("third-1", decided)
	if member.State != train.StateQueued || member.Spec.User != "zoe" || member.Spec.Tenant != "speech" {
		t.Errorf("a job of zoe's array: %s of %s of %s, %v", member.State, member.Spec.User, member.Spec.Tenant, member.Blockers)
	}
}

// asked publishes what people ask for.
type asked struct{ *bench }

// people publishes a request about a user or tenant, and waits until its record follows.
func (b asked) people(entity, name string, body any) {
	b.t.Helper()
	if err := b.bus.Publish(b.ctx, event.PeopleFact(entity, name, time.Now(), body)); err != nil {
		b.t.Fatal(err)
	}
	m, err := b.bus.Last(b.ctx, event.StreamPeople, event.Subject{Entity: entity, ID: name, Fact: event.FactSetRequested, Version: 1})
	if err != nil {
		b.t.Fatal(err)
	}
	for range tick.Every(b.ctx, 10*time.Millisecond) {
		if entity == event.EntityUser && sequence(b, contract.Users, name, func(p access.Person) uint64 { return p.Sequence }) >= m.Sequence ||
			entity == event.EntityTenant && sequence(b, contract.Tenants, name, func(t access.Tenant) uint64 { return t.Sequence }) >= m.Sequence {
			return
		}
	}
	b.t.Fatalf("the record of %s %s does not follow", entity, name)
}

func sequence[T any](b asked, bucket contract.Bucket[T], key string, of func(T) uint64) uint64 {
	kv, err := bus.OpenKV(b.ctx, b.bus, bucket)
	if err != nil {
		b.t.Fatal(err)
	}
	e, _ := kv.Get(b.ctx, key)
	return of(e.Value)
}
