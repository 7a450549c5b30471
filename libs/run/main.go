package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
)

// Service is one of the seven, or anything else that lives beside them.
type Service interface {
	// Name is one word.
	Name() string
	// Flags declares the service's own flags; their names are unique over all services, since `switchyard up` takes them all.
	Flags(fs *pflag.FlagSet)
	// Validate names every wrong setting at once.
	Validate(c Common) error
	// Run works until ctx ends and then returns nil; any error stops the process.
	Run(ctx context.Context, p Process) error
}

// Exclusive is a service of which one process at a time works while the others stand by. Its Run is called anew each time when the process's turn comes.
type Exclusive interface {
	Service
	// Task names what one process at a time does; empty where that does not matter.
	Task(c Common) string
}

// The exit codes of a service.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
)

// Main runs one service as a process of its own and gives its exit code.
func Main(args, environ []string, stderr io.Writer, s Service) int {
	var common Common
	fs := pflag.NewFlagSet(s.Name(), pflag.ContinueOnError)
	fs.SetOutput(stderr)
	common.Flags(fs)
	s.Flags(fs)
	err := fs.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return ExitOK
	}
	if err == nil {
		err = errors.Join(ApplyEnv(fs, environ), noArguments(fs))
	}
	if err == nil {
		err = errors.Join(common.Validate(), s.Validate(common))
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", s.Name(), err)
		return ExitUsage
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	log := common.NewLogger(stderr)
	if err := Together(ctx, common, stderr, func(a net.Addr) { log.Info("serving health and metrics", "service", s.Name(), "http", a.String()) }, s); err != nil {
		log.Error("stopped", "service", s.Name(), "error", err)
		return ExitError
	}
	return ExitOK
}

func noArguments(fs *pflag.FlagSet) error {
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: everything is set by flags", fs.Arg(0))
	}
	return nil
}

// stopTimeout is how long a service may take to stop before the next one is told to.
const stopTimeout = 10 * time.Second

// Together runs services in one process, each with its own connection and its own metrics label, behind one HTTP address. When ctx ends they are stopped
// one after the other in the given order. If one fails, the others are stopped and its error is returned.
func Together(ctx context.Context, common Common, stderr io.Writer, listening func(net.Addr), services ...Service) error {
	registry, health, log := Registry(), NewHealth(), common.NewLogger(stderr)
	all, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer fail(nil)
	running := pool.New().WithErrors()
	web := context.WithoutCancel(ctx)
	web, stopWeb := context.WithCancel(web)
	defer stopWeb()
	running.Go(func() error {
		err := ServeHTTP(web, common.HTTP, Handler(health, registry), listening)
		if err != nil {
			fail(err)
		}
		return err
	})
	stops := make([]func(), len(services))
	for i, s := range services {
		p := Process{
			Common: common, Log: log.With("service", s.Name()), health: health, service: s.Name(),
			Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"service": s.Name()}, registry),
		}
		p.starting()
		own, cancel := context.WithCancel(all)
		ended := make(chan struct{})
		stops[i] = func() {
			cancel()
			select {
			case <-ended:
			case <-time.After(stopTimeout):
				log.Warn("service is slow to stop", "service", s.Name())
			}
		}
		running.Go(func() error {
			defer close(ended)
			err := work(own, s, p)
			if err != nil {
				err = fmt.Errorf("%s: %w", s.Name(), err)
				fail(err)
			}
			return err
		})
	}
	running.Go(func() error { return watchStuck(web, health, fail) })
	select {
	case <-ctx.Done():
	case <-all.Done():
	}
	for _, stop := range stops {
		stop()
	}
	stopWeb()
	return running.Wait()
}

// stuckFor is how long the bus may store nothing before the process gives up, so that whoever restarts it restarts the bus, too.
const stuckFor = 30 * time.Second

// watchStuck ends everything when the bus has stored nothing for long.
func watchStuck(ctx context.Context, health *Health, fail func(error)) error {
	tick := time.NewTicker(stuckFor / 6)
	defer tick.Stop()
	var since time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := health.find(bus.ErrStuck)
		switch {
		case err == nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= stuckFor:
			fail(err)
			return err
		}
	}
}

var errStarting = errors.New("starting")

func (p Process) starting() { p.health.set(p.service+"/started", func() error { return errStarting }) }
