// Package energy is the book-keeper: it attributes what the nodes measured to jobs, exactly, and keeps one account per job. It measures nothing itself.
package energy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/influx"
)

// Service is the book-keeper.
type Service struct {
	idlePolicy string
	series     seriesConfig
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
	s.series.flags(fs)
}

// Validate names every wrong setting at once.
func (s *Service) Validate(run.Common) error {
	err := s.series.validate()
	if s.idlePolicy != idleCluster && s.idlePolicy != idleReserved {
		err = errors.Join(err, fmt.Errorf("--idle-policy %q: want %s or %s", s.idlePolicy, idleCluster, idleReserved))
	}
	return err
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
	grid, err := LoadGrid(s.series.grid)
	if err != nil {
		return err
	}
	rates, err := bus.OpenKV[train.EnergyRates](ctx, b, event.BucketRates)
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(collector{l})
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error { return jobs.Watch(ctx, l.see, p.Started) })
	work.Go(func(ctx context.Context) error { return b.Consume(ctx, measurements(l)) })
	work.Go(func(ctx context.Context) error { return l.keepSettling(ctx) })
	work.Go(func(ctx context.Context) error {
		return grid.keep(ctx, p.Log, func(ctx context.Context, told train.EnergyRates) error { return foretell(ctx, rates, told) })
	})
	if s.series.URL != "" {
		work.Go(func(ctx context.Context) error { return s.record(ctx, b, p, grid) })
	}
	return work.Wait()
}

// record writes the time series until ctx ends. The ledger does not wait for them.
func (s *Service) record(ctx context.Context, b *bus.Bus, p run.Process, grid *Grid) error {
	config := s.series
	config.reserved = s.idlePolicy == idleReserved
	client := influx.Open(config.Config)
	defer client.Close()
	r, err := newRecorder(ctx, b, config, client, grid, p.Log, p.Metrics)
	if err != nil {
		return err
	}
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error { return b.ConsumeBatches(ctx, r.intervals()) })
	work.Go(func(ctx context.Context) error { return b.ConsumeBatches(ctx, r.facts()) })
	work.Go(func(ctx context.Context) error { return b.ConsumeBatches(ctx, r.network()) })
	if config.groundTruth != "" {
		work.Go(func(ctx context.Context) error { return b.ConsumeBatches(ctx, r.truths()) })
	}
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
