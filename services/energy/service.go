// Package energy keeps the energy ledger: it attributes the nodes' measured energy to jobs, exactly, and keeps one
// account per job. It measures nothing itself.
package energy

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/grid"
	"github.com/switchyard-dl/switchyard/services/energy/influx"
	"github.com/switchyard-dl/switchyard/services/energy/series"
)

// Service is the energy service.
type Service struct {
	run.Alone
	config settings.Energy
}

// New makes the service.
func New(c settings.Energy) *Service { return &Service{"energy", c} }

// Run works until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	var jobs *bus.KV[train.Job]
	var rates *bus.KV[train.EnergyRates]
	if err := errors.Join(bus.Open(ctx, b, contract.Jobs, &jobs), bus.Open(ctx, b, contract.Rates, &rates)); err != nil {
		return err
	}
	l, err := newLedger(ctx, b, s.config.IdlePolicy == settings.IdleReserved, p.Log, time.Now())
	if err != nil {
		return err
	}
	prices, err := grid.Load(grid.Config{File: s.config.Tariff, Token: s.config.CarbonToken})
	if err != nil {
		return err
	}
	if s.config.Tariff != "" {
		l.price, l.currency = prices.Price, prices.Tariff.Currency
	}
	quotas, err := newSpendings(ctx, b, p.Log)
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(newCollector(l), newOwnerCollector(l, time.Now))
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error { return jobs.WatchShared(ctx, l.observe, p.Started) })
	work.Go(func(ctx context.Context) error {
		return b.ConsumeBatches(ctx, bus.BatchConsumer{
			Name: s.Name(), Stream: event.StreamSamples, Filters: []string{measuredFilter}, Size: mostIntervals, Wait: batchWait, Rest: batchRest, Handle: l.take,
		})
	})
	work.Go(l.keepSettling)
	work.Go(quotas.run)
	work.Go(func(ctx context.Context) error { return keepGrid(ctx, prices, rates, p.Log) })
	if s.config.InfluxURL != "" {
		work.Go(func(ctx context.Context) error { return s.record(ctx, b, p, prices) })
	}
	return work.Wait()
}

// record writes the time series until ctx ends. The ledger does not wait for them.
func (s *Service) record(ctx context.Context, b *bus.Bus, p run.Process, prices *grid.Grid) error {
	client := influx.Open(influx.Config{URL: s.config.InfluxURL, Token: s.config.InfluxToken, Org: s.config.InfluxOrg})
	defer client.Close()
	r, err := newRecorder(ctx, b, s.config, client, prices, p.Log, p.Metrics)
	if err != nil {
		return err
	}
	work := pool.New().WithContext(ctx).WithCancelOnError()
	consume := func(name, stream string, handle func(context.Context, []bus.Message) error, filters ...string) {
		work.Go(func(ctx context.Context) error {
			// A batch is a second of a large cluster, and small in memory.
			return b.ConsumeBatches(ctx, bus.BatchConsumer{Name: name, Stream: stream, Filters: filters, Size: 256, Wait: time.Second, Handle: handle})
		})
	}
	var facts []string
	for _, fact := range series.JobFacts() {
		facts = append(facts, event.Subject{Entity: "job", ID: "*", Fact: fact, Version: 1}.String())
	}
	consume("energy-series", event.StreamSamples, r.measured, measuredFilter)
	consume("energy-series-jobs", event.StreamJobs, r.happened, facts...)
	consume("energy-series-network", event.StreamSamples, r.probed, "yard.probe.*.counted.v1", "yard.probe.*.judged.v1")
	if s.config.InfluxGroundTruth != "" {
		consume("energy-series-truths", event.StreamTune, r.learnt, "yard.tune.*.learnt.v1")
	}
	return work.Wait()
}

// measuredFilter matches the intervals of all nodes.
const measuredFilter = "yard.energy.*.measured.v1"

const settleEvery = 500 * time.Millisecond

func (l *ledger) keepSettling(ctx context.Context) error {
	for now := range tick.After(ctx, settleEvery) {
		within, cancel := context.WithTimeout(ctx, settleAfter)
		err := l.settle(within, now)
		cancel()
		if err != nil && ctx.Err() == nil {
			l.log.Warn("accounts not closed yet", "error", err)
		}
	}
	return nil
}

// collector shows the books as metrics. The books survive restarts, so the counters do, too.
type collector struct {
	ledger                       *ledger
	energy, gap, missing, resets *prometheus.Desc
}

func newCollector(l *ledger) collector {
	return collector{
		ledger:  l,
		energy:  prometheus.NewDesc("switchyard_energy_joules_total", "Energy booked, by component and use.", []string{"component", "kind"}, nil),
		gap:     prometheus.NewDesc("switchyard_energy_gap_seconds_total", "Time between intervals in which nothing was measured.", nil, nil),
		missing: prometheus.NewDesc("switchyard_energy_missing_intervals_total", "Intervals that were measured and never came.", nil, nil),
		resets:  prometheus.NewDesc("switchyard_energy_resets_total", "Readings left out because a counter was reset.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.energy, c.gap, c.missing, c.resets} {
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
		counter(c.energy, t.Attributed.Joules(), component, "attributed")
		counter(c.energy, t.Idle.Joules(), component, "idle")
		counter(c.energy, t.Unattributed.Joules(), component, "unattributed")
	}
	counter(c.gap, gap)
	counter(c.missing, float64(missing))
	counter(c.resets, float64(resets))
}
