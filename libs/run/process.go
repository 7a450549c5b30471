package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/proc"
)

// Process holds what a service shares with its process: settings, log and metrics.
type Process struct {
	Common  Common
	Log     *slog.Logger
	Metrics prometheus.Registerer
	health  *Health
	meter   *bus.Meter
	records *bus.Records
	service string
	guards  *guards
}

// Connect opens the service's own connection, makes sure that the streams and buckets exist, and ties readiness to it.
// What is lost of them is noticed.
func (p Process) Connect(ctx context.Context) (*bus.Bus, error) {
	b, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	g, err := p.guards.of(ctx, p)
	if err == nil {
		b.Heed(g)
		err = p.watch(g)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	p.Check("bus", b.Ready)
	return b, nil
}

func (p Process) open(ctx context.Context) (*bus.Bus, error) {
	return bus.Connect(ctx, bus.Config{URL: p.Common.NATS, Here: p.Common.Here, Keys: p.Common.KeysDir(), Name: p.service, Log: p.Log, Replicas: p.Common.BusReplicas, Meter: p.meter, Records: p.records})
}

// watch ties readiness and metrics to what the guard finds.
func (p Process) watch(g *bus.Guard) error {
	p.Check("data", g.Err)
	lost := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "switchyard_bus_losses", Help: "Streams and buckets that have lost data and are not repaired."},
		func() float64 { return float64(len(g.Losses())) })
	if err := p.Metrics.Register(lost); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// Check adds a condition of readiness: nil when it holds.
func (p Process) Check(name string, check func() error) { p.health.set(p.service+"/"+name, check) }

// Bus connects without asking for any stream or bucket: for what must work while the bus stores nothing.
func (p Process) Bus(ctx context.Context) (*bus.Bus, error) {
	return bus.Connect(ctx, bus.Config{URL: p.Common.NATS, Here: p.Common.Here, Keys: p.Common.KeysDir(), Name: p.service, Log: p.Log, Meter: p.meter})
}

// Started says that the service has taken up its work.
func (p Process) Started() { p.health.set(p.service+"/started", func() error { return nil }) }

// Health collects the conditions of readiness.
type Health struct {
	mu     sync.Mutex
	checks map[string]func() error
}

// NewHealth makes an empty collection.
func NewHealth() *Health { return &Health{checks: map[string]func() error{}} }

func (h *Health) set(name string, check func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[name] = check
}

// Ready lists the conditions that do not hold yet.
func (h *Health) Ready() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var faults []string
	for name, check := range h.checks {
		if err := check(); err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", name, err))
		}
	}
	slices.Sort(faults)
	return faults
}

// find returns a fault of a kind, or nil.
func (h *Health) find(kind error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, check := range h.checks {
		if err := check(); errors.Is(err, kind) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Registry makes a registry with the process's own metrics.
func Registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	this := build.This()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "switchyard_build_info", Help: "1, with the version of this program.",
		ConstLabels: prometheus.Labels{"version": this.Version, "revision": this.Commit, "goversion": this.Go},
	}, func() float64 { return 1 }))
	return r
}

// Handler serves /healthz, /readyz, /metrics and the profiles of net/http/pprof.
func Handler(h *Health, metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if faults := h.Ready(); len(faults) > 0 {
			http.Error(w, strings.Join(faults, "\n"), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready\n")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("GET /debug/pprof/", forOwner(pprof.Index))
	mux.Handle("GET /debug/pprof/profile", forOwner(pprof.Profile))
	mux.Handle("GET /debug/pprof/trace", forOwner(pprof.Trace))
	return mux
}

// forOwner serves the user of this process and root alone: a profile costs processor time, and shows what the process
// works on. Other users of the machine reach its loopback too.
func forOwner(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if uid, err := anyPeer(r.Context()); err != nil || uid != 0 && uid != os.Geteuid() {
			http.Error(w, "profiles are for the user of the service and for root, on its machine: log in there as one of them", http.StatusForbidden)
			return
		}
		h(w, r)
	})
}

// anyPeer is Peer, also for a connection over the loopback.
func anyPeer(ctx context.Context) (uid int, err error) {
	if c, is := ctx.Value(connKey{}).(net.Conn); is && c.LocalAddr().Network() != "unix" {
		return proc.Peer(c)
	}
	return Peer(ctx)
}

// ServeHTTP serves h on address until ctx ends, then lets the requests in flight finish. ready gets the address.
func ServeHTTP(ctx context.Context, address string, h http.Handler, ready func(net.Addr)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on --http %s: %w", address, err)
	}
	ready(listener.Addr())
	return ServeListener(ctx, listener, h)
}

// ServeListener serves h on an open listener until ctx ends, then lets the requests in flight finish.
func ServeListener(ctx context.Context, listener net.Listener, h http.Handler) error {
	return serveHTTP(ctx, newServer(h), listener)
}

func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ConnContext: withConn, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
}

func serveHTTP(ctx context.Context, s *http.Server, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		_ = s.Shutdown(grace)
	})
	defer stop()
	if err := s.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	}
	return nil
}
