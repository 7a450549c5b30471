package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// watchedBus is the bus of this process as a service: it watches the disk, and says what is wrong with it.
type watchedBus struct {
	*busserver.Server
}

// Name implements run.Service.
func (e watchedBus) Name() string { return "bus" }

// Validate implements run.Service.
func (e watchedBus) Validate(run.Common) error { return nil }

// Run implements run.Service.
func (e watchedBus) Run(ctx context.Context, p run.Process) error {
	p.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "switchyard_bus_disk_full", Help: "1 while the disk of the embedded bus has no room for what it has to store.",
	}, func() float64 {
		if e.Trouble() != nil {
			return 1
		}
		return 0
	}))
	p.Check("disk", e.Trouble)
	return e.serve(ctx, p.Log, p.Bus, p.Started)
}

// serve watches until ctx ends.
func (e watchedBus) serve(ctx context.Context, log *slog.Logger, connect func(context.Context) (*bus.Bus, error), started func()) error {
	b, err := connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	started()
	serving := pool.New().WithErrors().WithContext(ctx)
	serving.Go(func(ctx context.Context) error {
		e.Watch(ctx, log)
		return nil
	})
	serving.Go(func(ctx context.Context) error {
		e.scrub(ctx, log, b)
		return nil
	})
	serving.Go(func(ctx context.Context) error { return bus.AnswerTrouble(ctx, b, e.Trouble) })
	return serving.Wait()
}

// scrubEvery is the interval between two checks of all messages on the disk.
const scrubEvery = 24 * time.Hour

// scrub checks the messages on the disk until ctx ends, and marks the streams that were damaged.
func (e watchedBus) scrub(ctx context.Context, log *slog.Logger, b *bus.Bus) {
	for range tick.After(ctx, scrubEvery) {
		cuts, err := e.Scrub(ctx, log)
		for _, c := range cuts {
			err = errors.Join(err, b.Damaged(ctx, c.Stream, c.Words))
		}
		if err != nil && ctx.Err() == nil {
			log.Error("the messages on the disk of the bus are not checked", "error", err)
		}
	}
}

// announcer publishes the addresses of this process once streams and buckets exist.
type announcer struct{ web chan net.Addr }

// Name implements run.Service.
func (a announcer) Name() string { return "up" }

// Validate implements run.Service.
func (a announcer) Validate(run.Common) error { return nil }

// Run implements run.Service.
func (a announcer) Run(ctx context.Context, p run.Process) error {
	b, err := p.Connect(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer b.Close()
	at := installation.Context{NATS: p.Common.NATS, Keys: p.Common.KeysDir(), HTTP: "http://" + (<-a.web).String(), DataDir: p.Common.DataDir, PID: os.Getpid()}
	other, err := installation.Announce(ctx, installation.ContextPath(), at)
	if err != nil {
		p.Log.Warn("other commands need --nats", "nats", bus.Redacted(at.NATS), "error", err)
	}
	if os.Getenv("SWITCHYARD_CONTEXT") == "" && other.NATS == "" { // it is the one that commands find by themselves
		if err := writeNATSContexts(at); err != nil {
			p.Log.Warn("`nats --context switchyard` does not work", "error", err)
		}
	}
	if other.NATS != "" {
		p.Log.Warn("commands reach another switchyard up; name this one with --nats or SWITCHYARD_NATS", "nats", bus.Redacted(at.NATS), "other", bus.Redacted(other.NATS), "other_data_dir", other.DataDir)
	}
	p.Log.Info("switchyard is up", "nats", bus.Redacted(at.NATS), "http", at.HTTP, "data_dir", at.DataDir)
	p.Started()
	<-ctx.Done()
	return nil
}
