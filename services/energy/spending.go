package energy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// spendings keeps the records of what tenants with a quota of energy have used this month. They follow from the books
// of the hours, as the reports do, so a restart counts nothing twice. Without such a tenant no book is read.
type spendings struct {
	hours   *bus.KV[contract.Book]
	tenants *bus.KV[access.Tenant]
	records *bus.KV[contract.Spending]
	log     *slog.Logger

	mu sync.Mutex
	// bounded are the names of the tenants with a quota, by their keys.
	bounded map[string]string
	// changed says that a quota was set or lifted.
	changed tick.Signal
}

func newSpendings(ctx context.Context, b *bus.Bus, log *slog.Logger) (*spendings, error) {
	s := &spendings{log: log, bounded: map[string]string{}, changed: tick.NewSignal()}
	return s, errors.Join(bus.Open(ctx, b, contract.Hours, &s.hours), bus.Open(ctx, b, contract.Tenants, &s.tenants), bus.Open(ctx, b, contract.Spendings, &s.records))
}

// run works until ctx ends.
func (s *spendings) run(ctx context.Context) error {
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error { return s.tenants.Watch(ctx, s.observe, nil) })
	work.Go(func(ctx context.Context) error {
		for ctx.Err() == nil {
			if len(s.names()) > 0 {
				if err := s.count(ctx, monthOf(time.Now())); err != nil {
					return err
				}
				continue
			}
			select {
			case <-ctx.Done():
			case <-s.changed:
			}
		}
		return nil
	})
	return work.Wait()
}

func (s *spendings) observe(e bus.Entry[access.Tenant], deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.bounded, e.Key); !deleted && e.Value.EnergyKWh != nil {
		s.bounded[e.Key] = e.Value.Name
	}
	s.changed.Send()
}

// names returns the tenants with a quota, by their keys.
func (s *spendings) names() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.bounded)
}

// spendingEvery is how often the records follow the books.
const spendingEvery = 5 * time.Second

// count follows the books of a month until it is over, or until no tenant has a quota.
func (s *spendings) count(ctx context.Context, month string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sum, complete := &monthly{month: month}, tick.NewLatch()
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error { return s.hours.Watch(ctx, sum.see, complete.Open, "*."+month+".*.*") })
	work.Go(complete.Then(func(ctx context.Context) error {
		defer cancel()
		written := map[string]unit.Energy{}
		for now := range tick.Every(ctx, spendingEvery) {
			names := s.names()
			if len(names) == 0 || monthOf(now) != month {
				return nil
			}
			for key, tenant := range names {
				energy := sum.of(tenant)
				if before, known := written[key]; known && before == energy {
					continue
				}
				if err := s.records.Put(ctx, contract.SpendingKey(key), contract.Spending{Tenant: tenant, Month: month, Energy: energy}); err != nil {
					if ctx.Err() == nil {
						s.log.Warn("what a tenant has used is not written down yet", "tenant", tenant, "error", err)
					}
					continue
				}
				written[key] = energy
			}
		}
		return nil
	}))
	if err := work.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("count the energy of tenants: %w", err)
	}
	return nil
}

func monthOf(at time.Time) string { return at.UTC().Format(contract.MonthForm) }

// monthly adds up the books of the hours of a month, by tenant. It sees each book again whenever it has changed, and
// all of them after a lost connection.
type monthly struct {
	month string

	mu sync.Mutex
	// counted is what of each book is in the sums: by node, day and hour, and in them by tenant.
	counted map[string]spent
	sums    map[string]unit.Energy
}

// spent is the energy of an hour of a node by tenant. Nearly all have one tenant or none.
type spent []struct {
	tenant string
	energy unit.Energy
}

// see counts a book in place of what was counted of it before.
func (m *monthly) see(e bus.Entry[contract.Book], deleted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counted == nil {
		m.counted, m.sums = map[string]spent{}, map[string]unit.Energy{}
	}
	for _, part := range m.counted[e.Key] {
		m.sums[part.tenant] -= part.energy
	}
	delete(m.counted, e.Key)
	if _, hour, _ := strings.Cut(e.Key, "."); deleted || !strings.HasPrefix(hour, m.month) {
		return
	}
	by := map[string]unit.Energy{}
	for job, account := range e.Value.Running {
		by[e.Value.Owners[job].Tenant] += account.Energy
	}
	var parts spent
	for tenant, energy := range by {
		m.sums[tenant] += energy
		parts = append(parts, struct {
			tenant string
			energy unit.Energy
		}{tenant, energy})
	}
	if len(parts) > 0 {
		m.counted[e.Key] = parts
	}
}

// of returns what a tenant has used.
func (m *monthly) of(tenant string) unit.Energy {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sums[tenant]
}
