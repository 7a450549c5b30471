package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// people folds what operators ask of users and tenants into their records, and knows the newest of them.
type people struct {
	users   *bus.KV[access.Person]
	tenants *bus.KV[access.Tenant]
	mu      sync.Mutex
	// known and bounds are by the keys of names.
	known  map[string]access.Person
	bounds map[string]access.Bounds
}

// unknownPeople has no records.
func unknownPeople() *people {
	return &people{known: map[string]access.Person{}, bounds: map[string]access.Bounds{}}
}

func newPeople(ctx context.Context, b *bus.Bus) (*people, error) {
	p := unknownPeople()
	return p, errors.Join(bus.Open(ctx, b, contract.Users, &p.users), bus.Open(ctx, b, contract.Tenants, &p.tenants))
}

// follow folds requests and reads all records in running. What it returns delays a function until they are known.
func (p *people) follow(b *bus.Bus, running *pool.ContextPool) func(then func(context.Context) error) func(context.Context) error {
	users, tenants := tick.NewLatch(), tick.NewLatch()
	running.Go(func(ctx context.Context) error { return p.users.Watch(ctx, p.observeUser, users.Open) })
	running.Go(func(ctx context.Context) error { return p.tenants.Watch(ctx, p.observeTenant, tenants.Open) })
	running.Go(func(ctx context.Context) error { return b.Consume(ctx, p.consumer()) })
	return func(then func(context.Context) error) func(context.Context) error {
		return users.Then(tenants.Then(then))
	}
}

// consumer reads the requests in the order of their stream. A record knows the newest one that it follows, so a request
// that comes again changes nothing.
func (p *people) consumer() bus.Consumer {
	return bus.Consumer{Name: consumerName + "-people", Stream: event.StreamPeople, Filters: []string{"yard.user.>", "yard.tenant.>"}, Handle: p.handle}
}

func (p *people) handle(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	if m.ParseErr != nil {
		return nil, fmt.Errorf("%w: InvalidSubject: %w", bus.ErrPoison, m.ParseErr)
	}
	_, body, err := readFact(m)
	if err != nil {
		return nil, err
	}
	key, name := m.Parsed.ID, strings.ReplaceAll(m.Parsed.ID, "=", ".")
	switch asked := body.(type) { // the next submission is to find what the record says, so nothing waits for the watch
	case *event.UserSet:
		if _, err := access.ParseRole(string(asked.Role)); err != nil {
			return nil, fmt.Errorf("%w: InvalidRole: %w", bus.ErrPoison, err)
		}
		e, failed := p.users.Modify(ctx, key, func(r *access.Person) (bool, error) {
			if r.Sequence >= m.Sequence {
				return false, nil
			}
			*r = access.Person{Name: name, Role: asked.Role, Tenant: asked.Tenant, Sequence: m.Sequence}
			return true, nil
		})
		if err = failed; err == nil {
			p.observeUser(e, false)
		}
	case *event.TenantSet:
		e, failed := p.tenants.Modify(ctx, key, func(r *access.Tenant) (bool, error) {
			if r.Sequence >= m.Sequence {
				return false, nil
			}
			*r = access.Tenant{Name: name, Bounds: asked.Bounds, Sequence: m.Sequence}
			return true, nil
		})
		if err = failed; err == nil {
			p.observeTenant(e, false)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", m.Subject, err)
	}
	return nil, nil
}

func (p *people) observeUser(e bus.Entry[access.Person], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.known, e.Key); !deleted {
		p.known[e.Key] = e.Value
	}
}

func (p *people) observeTenant(e bus.Entry[access.Tenant], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.bounds, e.Key); !deleted {
		p.bounds[e.Key] = e.Value.Bounds
	}
}

// tenantOf returns the tenant of a person who has one of his own, else none.
func (p *people) tenantOf(user string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[keyOf(user)].Tenant
}

// of returns the bounds of a tenant.
func (p *people) of(tenant string) access.Bounds {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bounds[keyOf(tenant)]
}

// keyOf returns the key of a name, or none for a name that has no record.
func keyOf(name string) string {
	key, err := access.Key(name)
	if err != nil {
		return ""
	}
	return key
}
