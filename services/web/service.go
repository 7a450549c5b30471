// Package web is the door for people: it keeps an index of what is on the bus and answers questions about it over HTTP.
// It decides nothing and writes no record. Package api lists the questions; docs/web.md explains them.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sourcegraph/conc/pool"
	"golang.org/x/net/netutil"

	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/kubetoken"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/throttle"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/extender"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/metrics"
	"github.com/switchyard-dl/switchyard/services/web/session"
)

// Service is the service web.
type Service struct {
	config settings.Web
	now    func() time.Time
	greet  func(link string) (shown bool)
}

// New makes the service. now is its clock.
func New(c settings.Web, now func() time.Time) *Service { return &Service{config: c, now: now} }

// Greets makes the service give greet a link that logs the owner in to the page, once it is served. greet reports
// whether it has shown the link; a log is no place for one.
func (s *Service) Greets(greet func(link string) (shown bool)) *Service {
	s.greet = greet
	return s
}

// Name implements run.Service.
func (s *Service) Name() string { return "web" }

// Validate implements run.Service. There is nothing to check.
func (s *Service) Validate(run.Common) error { return nil }

// Run watches the bus and, once everything is known, answers until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	known := newKnown(p.Log, strconv.FormatInt(s.now().UnixNano(), 36))
	known.index.Jobs.Decode = func(data []byte) (*train.Job, error) { return bus.Decode[train.Job](b, data) }
	known.index.Plans.Decode = func(data []byte) (*train.Plan, error) { return bus.Decode[train.Plan](b, data) }
	running := pool.New().WithContext(ctx).WithCancelOnError()
	d, err := newDoor(filepath.Join(p.Common.DataDir, sessionsName), s.config.Hosts, s.now)
	if err != nil {
		return err
	}
	if s.config.KubernetesAudience != "" {
		config, err := kubetoken.Cluster(program)
		if err != nil {
			return fmt.Errorf("web.kubernetes_audience: %w", err)
		}
		if d.tokens, err = kubetoken.Connect(config, s.config.KubernetesAudience, s.now); err != nil {
			return err
		}
	}
	answers := server{url: bus.Redacted(p.Common.NATS), bus: b, known: known, told: &told{}, plans: &planText{}, door: d, refusals: audit.New(b, p.Log, s.now), floods: audit.New(b, p.Log, s.now), rates: throttle.New(), uploading: &underWay{of: map[string]int{}}, reading: newReading(), terminals: &underWay{of: map[string]int{}}, now: s.now, closing: ctx.Done()}.handler()
	doors := []doorway{s.socket(p, d.onSocket(answers))}
	if s.config.SharedSocket != "" {
		doors = append(doors, s.sharedSocket(p, d.onSocket(answers)))
	}
	if s.config.Listen != "" {
		listener, err := s.listen(ctx, p, d)
		if err != nil {
			return err
		}
		doors = append(doors, pageOn(listener, d.onTCP(answers)))
	}
	if s.config.Extender != "" {
		extends, err := s.extender(b)
		if err != nil {
			return err
		}
		doors = append(doors, extends)
	}
	serve := func(ctx context.Context) error {
		p.Metrics.MustRegister(metrics.New(s.config.MetricsJobs, func(f func(*index.Index)) { known.read(f) }, s.now))
		return serveAll(ctx, doors, p.Started)
	}
	for bucket, sources := range known.index.Buckets() {
		complete := tick.NewLatch()
		running.Go(func(ctx context.Context) error { return watch(ctx, b, known, bucket, sources, complete.Open) })
		serve = complete.Then(serve)
	}
	running.Go(serve)
	if kinds := objectKinds(s.config); len(kinds) > 0 {
		running.Go(func(ctx context.Context) error { return kubernetesJobs{known, b, answers, s.now, kinds}.run(ctx, p) })
	}
	return running.Wait()
}

// doorway is a way for people to reach the service: what it listens on, and how it answers there.
type doorway struct {
	listen func(context.Context) (net.Listener, error)
	serve  func(context.Context, net.Listener) error
}

// serveAll listens on all doors, says that the service is ready, and answers until ctx ends.
func serveAll(ctx context.Context, doors []doorway, ready func()) error {
	running := pool.New().WithContext(ctx).WithCancelOnError()
	for _, d := range doors {
		listener, err := d.listen(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = listener.Close() }()
		running.Go(func(ctx context.Context) error { return d.serve(ctx, listener) })
	}
	ready()
	return running.Wait()
}

// extender is the door of schedulers of Kubernetes.
func (s *Service) extender(b *bus.Bus) (doorway, error) {
	secret, err := os.ReadFile(s.config.ExtenderSecret)
	if err != nil {
		return doorway{}, fmt.Errorf("read the word of schedulers (web.extender_secret): %w", err)
	}
	answers := extender.Handler(strings.TrimSpace(string(secret)), func(ctx context.Context, r rpc.PodRequest) (rpc.PodAnswer, error) {
		return bus.Ask[rpc.PodRequest, rpc.PodAnswer](ctx, b, rpc.PodSubject, r)
	})
	return doorway{func(ctx context.Context) (net.Listener, error) {
		var c net.ListenConfig
		return c.Listen(ctx, "tcp", s.config.Extender)
	}, func(ctx context.Context, l net.Listener) error {
		return run.ServeListener(ctx, netutil.LimitListener(l, connections), answers)
	}}, nil
}

// socket is the door of the installation's owner.
func (s *Service) socket(p run.Process, answers http.Handler) doorway {
	return doorway{func(ctx context.Context) (net.Listener, error) {
		return installation.ListenUnix(ctx, filepath.Join(p.Common.DataDir, api.SocketName))
	}, func(ctx context.Context, l net.Listener) error { return run.ServeListener(ctx, l, answers) }}
}

// sharedSocket is the door of the other users of the machine.
func (s *Service) sharedSocket(p run.Process, answers http.Handler) doorway {
	return doorway{func(ctx context.Context) (net.Listener, error) {
		p.Log.Info("serving the users of the machine", "socket", s.config.SharedSocket, "group", s.config.SharedGroup)
		return installation.ListenShared(ctx, s.config.SharedSocket, s.config.SharedGroup)
	}, func(ctx context.Context, l net.Listener) error {
		return run.ServePeers(ctx, l, answers, maxConnections)
	}}
}

// connections is the largest number of connections over TCP at a time; more wait.
const connections = 256

// listen opens the address of the page. If its port is taken, it takes a free one: people get the address from `up`
// and `open`.
func (s *Service) listen(ctx context.Context, p run.Process, d *door) (net.Listener, error) {
	var c net.ListenConfig
	listener, err := c.Listen(ctx, "tcp", s.config.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(s.config.Listen)
		p.Log.Warn("another program listens where the page belongs; it is served on a free port", "listen", s.config.Listen)
		listener, err = c.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, fmt.Errorf("serve the page (web.listen): %w", err)
	}
	d.opened(listener.Addr())
	if ip, err := netip.ParseAddrPort(listener.Addr().String()); err == nil && !ip.Addr().IsLoopback() {
		p.Log.Warn("other machines reach the page without encryption: put a proxy with TLS in front", "listen", listener.Addr().String())
	}
	link, err := d.link(session.Who{Owner: true})
	if err != nil {
		return nil, err
	}
	if s.greet == nil || !s.greet(link.URL) {
		p.Log.Info("serving the page", "address", d.address(), "log_in", "switchyard open")
	}
	return netutil.LimitListener(listener, connections), nil
}

// pageOn is the door of browsers. It is open from the start; an early client waits.
func pageOn(listener net.Listener, answers http.Handler) doorway {
	return doorway{
		func(context.Context) (net.Listener, error) { return listener, nil },
		func(ctx context.Context, l net.Listener) error { return run.ServeListener(ctx, l, answers) },
	}
}

// watch puts a bucket into the index until ctx ends. It calls complete when all of it is there.
func watch(ctx context.Context, b *bus.Bus, known *known, name string, sources []index.Source, complete func()) error {
	if sources[0].Stream() != "" {
		return watchMessages(ctx, b, known, sources[0], complete)
	}
	bucket, err := bus.OpenKV(ctx, b, contract.Bucket[json.RawMessage](name))
	if err != nil {
		return err
	}
	return bucket.Watch(ctx, func(e bus.Entry[json.RawMessage], deleted bool) {
		for _, source := range sources {
			known.put(source, e.Key, e.Revision, e.Value)
		}
	}, func() {
		for _, source := range sources {
			known.listed(source)
		}
		complete()
	})
}

// watchMessages puts the newest message of each subject into the index, and each one that follows.
func watchMessages(ctx context.Context, b *bus.Bus, known *known, source index.Source, complete func()) error {
	filters, next := []string{source.Pattern()}, uint64(1)
	put := func(m bus.Message) {
		known.put(source, m.Parsed.ID, m.Sequence, m.Data)
		next = max(next, m.Sequence+1)
	}
	for range tick.Every(ctx, time.Second) {
		if b.Newest(ctx, source.Stream(), filters, put) == nil {
			break
		}
	}
	complete()
	return b.Follow(ctx, source.Stream(), filters, next, put)
}
