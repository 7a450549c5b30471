package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// work runs a service; an exclusive service waits for its lease.
func work(ctx context.Context, s Service, p Process) error {
	e, exclusive := s.(Exclusive)
	if !exclusive || e.Task(p.Common) == "" {
		return serve(ctx, s, p)
	}
	task := e.Task(p.Common)
	holder, unlock, err := p.identity(ctx, task)
	if err != nil {
		return err
	}
	defer unlock()
	b, err := p.open(ctx)
	if err != nil {
		return DropAtStop(ctx, err)
	}
	defer b.Close()
	if _, err := p.guards.of(ctx, p); err != nil {
		return DropAtStop(ctx, err)
	}
	p.Check("bus", b.Ready)
	leading := prometheus.NewGauge(prometheus.GaugeOpts{Name: "switchyard_lease_term", Help: "The term in which this process holds the lease of its service; 0 while it stands by."})
	if err := p.Metrics.Register(leading); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	waiting := func(other string) {
		p.Log.Info("standing by: another process does this work", "holder", other)
		p.Started() // ready to take over
	}
	return b.Lead(ctx, bus.Claim{Task: task, Holder: holder, Waiting: waiting}, func(ctx context.Context, term uint64) error {
		p.Log.Debug("lease taken", "task", task, "term", term)
		leading.Set(float64(term))
		defer leading.Set(0)
		defer p.Check("bus", b.Ready)
		return serve(ctx, s, p)
	})
}

// serve runs a service, and again if it ended because the bus did not answer: while the servers of a cluster elect a
// leader, nobody does.
func serve(ctx context.Context, s Service, p Process) error {
	for {
		p.starting()
		mine, metrics := p, &turnMetrics{Registerer: p.Metrics}
		mine.Metrics = metrics
		err := s.Run(ctx, mine)
		metrics.unregister()
		switch {
		case ctx.Err() != nil && errors.Is(err, context.Canceled):
			return nil // it was stopped in the middle of a question, however it put that
		case !errors.Is(err, bus.ErrAway) && !errors.Is(err, ErrTaken) || ctx.Err() != nil:
			return err
		}
		p.Log.Warn("the service begins again", "error", err)
		tick.Pause(ctx, restartAfter)
	}
}

// restartAfter is the pause before a service begins again.
const restartAfter = time.Second

// DropAtStop returns nil if ctx has ended: errors that a requested stop leaves behind do not matter.
func DropAtStop(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// identity is the name under which this process holds leases: the machine and the data folder. A restarted process has
// the same name and takes over at once. A lock in the folder keeps two such processes from running at the same time.
func (p Process) identity(ctx context.Context, task string) (holder string, unlock func(), err error) {
	host, err := os.Hostname()
	if err != nil {
		return "", nil, fmt.Errorf("find the name of this machine: %w", err)
	}
	unlock, err = Lock(ctx, filepath.Join(p.Common.DataDir, task+".turn"), func() {
		p.Log.Info("standing by: another process works in the data folder", "data_dir", p.Common.DataDir)
		p.Started()
	})
	return host + ":" + p.Common.DataDir, unlock, err
}

// turnMetrics takes back at the end of a turn what was registered in it.
type turnMetrics struct {
	prometheus.Registerer
	mu    sync.Mutex
	added []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (t *turnMetrics) Register(c prometheus.Collector) error {
	if err := t.Registerer.Register(c); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.added = append(t.added, c)
	return nil
}

// MustRegister implements prometheus.Registerer.
func (t *turnMetrics) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := t.Register(c); err != nil {
			panic(err)
		}
	}
}

func (t *turnMetrics) unregister() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.added {
		t.Unregister(c)
	}
	t.added = nil
}
