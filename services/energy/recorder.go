package energy

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/energy/attribute"
	"github.com/switchyard-dl/switchyard/services/energy/grid"
	"github.com/switchyard-dl/switchyard/services/energy/influx"
	"github.com/switchyard-dl/switchyard/services/energy/series"
)

// recorder writes the time series. Unwritten data stays in the streams: the recorder keeps one batch in memory, and
// each node's position in the ledger's bucket.
type recorder struct {
	config    settings.Energy
	database  *influx.Client
	bus       *bus.Bus
	counters  *bus.KV[contract.NodeSeries]
	timelines *bus.KV[contract.JobSeries]
	progress  *bus.KV[train.EnergyProgress]
	jobs      *bus.KV[train.Job]
	nodes     *bus.KV[train.Node]
	accounts  *bus.KV[train.Account]
	grid      *grid.Grid
	log       *slog.Logger
	written   prometheus.Counter
	refused   prometheus.Counter
	missing   prometheus.Counter
	owners    map[train.JobID]series.Owner
}

func newRecorder(ctx context.Context, b *bus.Bus, c settings.Energy, d *influx.Client, g *grid.Grid, log *slog.Logger, metrics prometheus.Registerer) (*recorder, error) {
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(metrics).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	r := &recorder{
		config: c, database: d, bus: b, grid: g, log: log, owners: map[train.JobID]series.Owner{},
		written: counter("switchyard_energy_points_written_total", "Points that the time-series database has confirmed."),
		refused: counter("switchyard_energy_points_refused_total", "Points of batches that the time-series database will not take: they are lost to it."),
		missing: counter("switchyard_energy_series_missing_total", "Intervals that had left the stream before they were written to the time-series database."),
	}
	return r, errors.Join(
		bus.Open(ctx, b, contract.SeriesNodes, &r.counters), bus.Open(ctx, b, contract.SeriesJobs, &r.timelines),
		bus.Open(ctx, b, contract.EnergyProgress, &r.progress), bus.Open(ctx, b, contract.Accounts, &r.accounts),
		bus.Open(ctx, b, contract.Jobs, &r.jobs), bus.Open(ctx, b, contract.Nodes, &r.nodes),
	)
}

// position is the stored state of a node's series.
type position struct {
	at     contract.NodeSeries
	stored uint64
	node   train.Node
}

// measured writes a batch of intervals. The order makes it repeatable at any point: first the points, then the
// positions, then the acknowledgement.
func (r *recorder) measured(ctx context.Context, batch []bus.Message) error {
	var readings []reading
	for _, m := range batch {
		if body, err := readMeasured(m); err == nil { // else the ledger's consumer moves it to POISON
			readings = append(readings, reading{body, m.Sequence})
		}
	}
	positions, err := r.open(ctx, readings)
	if err != nil {
		return err
	}
	var points, pipetune []series.Point
	for _, m := range readings {
		p := positions[m.Node]
		interval, err := r.interval(ctx, m.Measured)
		if err != nil {
			return err
		}
		more, missed := (*series.Counters)(&p.at).Add(interval, m.stream, r.surroundings(p.node, m.To))
		if missed > 0 {
			r.missing.Add(float64(missed))
			r.log.Warn("intervals were gone before they were written to the time series", "node", m.Node,
				"intervals", missed, "before", m.From)
		}
		points = append(points, more...)
		if r.config.InfluxPipeTune != "" && len(more) > 0 {
			pipetune = append(pipetune, series.PipeTune(m.Measured)...)
		}
	}
	if err := r.write(ctx, influx.Bucket(r.config.InfluxDatabase, series.Raw), points); err != nil {
		return err
	}
	if err := r.write(ctx, r.config.InfluxPipeTune, pipetune); err != nil {
		return err
	}
	side := pool.New().WithMaxGoroutines(exchangesAtOnce).WithErrors().WithFirstError()
	for node, p := range positions {
		side.Go(func() error {
			_, err := r.counters.Swap(ctx, contract.SeriesNodeKey(node), p.at, p.stored)
			return err
		})
	}
	return side.Wait()
}

// open reads the positions of the nodes that were measured.
func (r *recorder) open(ctx context.Context, readings []reading) (map[train.NodeID]*position, error) {
	positions := map[train.NodeID]*position{}
	side := pool.New().WithMaxGoroutines(exchangesAtOnce).WithErrors().WithFirstError()
	for _, m := range readings {
		if positions[m.Node] == nil {
			p := &position{}
			positions[m.Node] = p
			side.Go(func() error { return r.read(ctx, m.Node, p) })
		}
	}
	return positions, side.Wait()
}

func (r *recorder) read(ctx context.Context, node train.NodeID, p *position) error {
	stored, err := r.counters.Get(ctx, contract.SeriesNodeKey(node))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return err
	}
	machine, err := r.nodes.Get(ctx, string(node))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return err
	}
	*p = position{at: stored.Value, stored: stored.Revision, node: machine.Value}
	return nil
}

// interval divides the energy of each meter as the books do, and makes sure that the owners of the jobs are known.
func (r *recorder) interval(ctx context.Context, m event.Measured) (series.Interval, error) {
	in := series.Interval{Measured: m, Splits: make([]attribute.Split, len(m.Meters))}
	for i, meter := range m.Meters {
		in.Splits[i] = divide(meter, usesOf(meter, m.Users), rules{reserved: r.config.IdlePolicy == settings.IdleReserved})
	}
	for _, u := range m.Users {
		if _, err := r.owner(ctx, u.Job); err != nil {
			return in, err
		}
	}
	return in, nil
}

// owner returns the owner of a job, which does not change once the job runs.
func (r *recorder) owner(ctx context.Context, job train.JobID) (series.Owner, error) {
	if o, known := r.owners[job]; known {
		return o, nil
	}
	e, err := r.jobs.Get(ctx, string(job))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return series.Owner{}, err
	}
	const most = 10_000
	if len(r.owners) >= most {
		clear(r.owners)
	}
	o := series.Owner{Tenant: e.Value.Spec.Tenant, User: e.Value.Spec.User}
	r.owners[job] = o
	return o, nil
}

func (r *recorder) surroundings(node train.Node, at time.Time) series.Surroundings {
	return series.Surroundings{
		Cluster: r.config.ClusterName,
		Owner:   func(job train.JobID) series.Owner { return r.owners[job] },
		Device: func(id train.DeviceID) train.Device {
			for _, d := range node.Devices {
				if d.ID == id {
					return d
				}
			}
			return train.Device{}
		},
		Price: r.grid.Price(at),
	}
}

// learnt writes a batch of ground truth under PipeTune's names. The same fact gives the same points, so no position is
// stored.
func (r *recorder) learnt(ctx context.Context, batch []bus.Message) error {
	var points []series.Point
	for _, m := range batch {
		body, err := event.Decode[event.Learnt](m.Data)
		if err != nil || m.ParseErr != nil {
			continue // it has no usable content
		}
		points = append(points, series.GroundTruth(body, m.Time)...)
	}
	return r.write(ctx, r.config.InfluxGroundTruth, points)
}

// probed writes a batch of slots and windows. Their points follow from them alone, so it can be repeated.
func (r *recorder) probed(ctx context.Context, batch []bus.Message) error {
	var points []series.Point
	for _, m := range batch {
		switch {
		case m.ParseErr != nil:
		case m.Parsed.Fact == event.FactCounted:
			if c, err := event.Decode[event.ProbesCounted](m.Data); err == nil {
				points = append(points, series.Probes(train.NodeID(m.Parsed.ID), c, r.config.ClusterName))
			}
		default:
			if j, err := event.Decode[event.LinksJudged](m.Data); err == nil {
				points = append(points, series.Links(j, r.config.ClusterName)...)
			}
		}
	}
	return r.write(ctx, influx.Bucket(r.config.InfluxDatabase, series.Raw), points)
}

// write stores points. It counts and drops points that the database will never accept, so that they do not hold up the
// others.
func (r *recorder) write(ctx context.Context, bucket string, points []series.Point) error {
	err := r.database.Write(ctx, bucket, points)
	if errors.Is(err, influx.ErrRefused) {
		r.refused.Add(float64(len(points)))
		r.log.Error("points are lost to the time series", "bucket", bucket, "points", len(points), "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	r.written.Add(float64(len(points)))
	return nil
}
