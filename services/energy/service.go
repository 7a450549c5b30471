// Package energy is the book-keeper: it attributes what the nodes measured to jobs, exactly, and keeps one account per job. It measures nothing itself.
package energy

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Service is the book-keeper.
type Service struct {
	idlePolicy string
}

// The choices of --idle-policy.
const (
	idleCluster  = "cluster"
	idleReserved = "reserved"
)

// New makes a book-keeper.
func New() *Service { return &Service{} }

// Name is the service's name.
func (s *Service) Name() string { return "energy" }

// Task is the same for all processes: one at a time works.
func (s *Service) Task(run.Common) string { return s.Name() }

// Flags declares the service's flags.
func (s *Service) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&s.idlePolicy, "idle-policy", idleCluster,
		"who pays for what devices draw without work: cluster (nobody's job) or reserved (the jobs that keep the devices)")
}

// Validate refuses an unknown policy.
func (s *Service) Validate(run.Common) error {
	if s.idlePolicy != idleCluster && s.idlePolicy != idleReserved {
		return fmt.Errorf("--idle-policy %q: want %s or %s", s.idlePolicy, idleCluster, idleReserved)
	}
	return nil
}

// Run works until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	jobs, err := bus.OpenKV[train.Job](ctx, b, event.BucketJobs)
	if err != nil {
		return err
	}
	l, err := newLedger(ctx, b, s.idlePolicy == idleReserved, p.Log, time.Now())
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(collector{l})
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error { return jobs.Watch(ctx, l.see, p.Started) })
	work.Go(func(ctx context.Context) error { return b.Consume(ctx, measurements(l)) })
	work.Go(func(ctx context.Context) error { return l.keepSettling(ctx) })
	return work.Wait()
}

// measurements is the consumer of all intervals.
func measurements(l *ledger) bus.Consumer {
	return bus.Consumer{Name: "energy", Stream: event.StreamSamples, Filters: []string{"yard.energy.*.measured.v1"}, Handle: l.handle}
}

const settleEvery = 500 * time.Millisecond

// keepSettling closes accounts until ctx ends.
func (l *ledger) keepSettling(ctx context.Context) error {
	ticker := time.NewTicker(settleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			within, cancel := context.WithTimeout(ctx, settleAfter)
			err := l.settle(within, now)
			cancel()
			if err != nil && ctx.Err() == nil {
				l.log.Warn("accounts not closed yet", "error", err)
			}
		}
	}
}

// collector shows the books as metrics. They are kept over restarts, so the counters are, too.
type collector struct{ ledger *ledger }

func energyDesc() *prometheus.Desc {
	return prometheus.NewDesc("switchyard_energy_joules_total", "Energy booked, by component and by what became of it.", []string{"component", "kind"}, nil)
}

func gapDesc() *prometheus.Desc {
	return prometheus.NewDesc("switchyard_energy_gap_seconds_total", "Time between intervals in which nothing was measured.", nil, nil)
}

func missingDesc() *prometheus.Desc {
	return prometheus.NewDesc("switchyard_energy_missing_intervals_total", "Intervals that were measured and never came.", nil, nil)
}

func resetDesc() *prometheus.Desc {
	return prometheus.NewDesc("switchyard_energy_counter_resets_total", "Readings that were left out because a counter began anew.", nil, nil)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{energyDesc(), gapDesc(), missingDesc(), resetDesc()} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	totals, gap, missing, resets := c.ledger.totals()
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for component, t := range totals {
		counter(energyDesc(), t.Attributed.Joules(), component, "attributed")
		counter(energyDesc(), t.Idle.Joules(), component, "idle")
		counter(energyDesc(), t.Unattributed.Joules(), component, "unattributed")
	}
	counter(gapDesc(), gap)
	counter(missingDesc(), float64(missing))
	counter(resetDesc(), float64(resets))
}
