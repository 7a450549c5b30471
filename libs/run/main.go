package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/config"
	"github.com/switchyard-dl/switchyard/libs/disk"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Service is one of the eight services, or another part of the same process.
type Service interface {
	// Name is one word.
	Name() string
	// Validate names every setting that does not fit another setting or the machine. The values alone were checked
	// before.
	Validate(c Common) error
	// Run works until ctx ends and then returns nil; any error stops the process.
	Run(ctx context.Context, p Process) error
}

// Exclusive is a service that works in one process at a time while the others stand by. Run is called whenever this
// process takes the lease.
type Exclusive interface {
	Service
	// Task names the lease; if it is empty, any number of processes may work.
	Task(c Common) string
}

// Alone is the name of a service of which one process works at a time, and whose settings need no check but their own.
// Such a service embeds it.
type Alone string

// Name returns the service's name on the bus.
func (a Alone) Name() string { return string(a) }

// Task returns the same for all processes, so that one of them works at a time.
func (a Alone) Task(Common) string { return string(a) }

// Validate has nothing to check.
func (a Alone) Validate(Common) error { return nil }

// The exit codes of a process.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
)

// Main runs the service of a section of the configuration as a process of its own and returns its exit code. make gets
// the configuration once it is read. With the argument ready, it asks the process that has the same configuration
// whether it is ready: images have no other program that could.
func Main(args, environ []string, stderr io.Writer, section string, make func(*settings.All) Service) int {
	all, set := settings.New()
	fs := pflag.NewFlagSet(section, pflag.ContinueOnError)
	fs.SetOutput(stderr)
	line := set.CommandLine(fs, func(s *config.Setting) bool {
		return slices.Contains([]string{"bus", "data", "process", section}, s.Section.Name) && s.Name != "port"
	})
	version := fs.Bool("version", false, "print the version and stop")
	err := config.FlagError(fs.Parse(args))
	if errors.Is(err, pflag.ErrHelp) {
		return ExitOK
	}
	if err == nil && *version {
		fmt.Fprintf(os.Stdout, "switchyard-%s version %s\n", section, build.This().Version)
		return ExitOK
	}
	var s Service
	asked := slices.Equal(fs.Args(), []string{"ready"})
	if err == nil {
		_, err = line.Load(environ)
		if !asked {
			err = errors.Join(err, noArguments(fs))
		}
	}
	if err == nil && asked {
		return ready(all.Common.HTTP, stderr)
	}
	if err == nil {
		s = make(all)
		err = s.Validate(all.Common)
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", section, err)
		return ExitUsage
	}
	common := all.Common
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	log := common.NewLogger(stderr)
	if err := Together(ctx, common, stderr, func(a net.Addr) { log.Info("serving health and metrics", "service", s.Name(), "http", a.String()) }, s); err != nil {
		log.Error("stopped", "service", s.Name(), "error", err)
		return ExitError
	}
	return ExitOK
}

func ready(address string, stderr io.Writer) int {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get("http://" + address + "/readyz")
	if err != nil {
		fmt.Fprintf(stderr, "not ready: %v\n", err)
		return ExitError
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		faults, _ := io.ReadAll(answer.Body)
		fmt.Fprintf(stderr, "not ready: %s\n", faults)
		return ExitError
	}
	return ExitOK
}

func noArguments(fs *pflag.FlagSet) error {
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: everything is set by flags, the environment and the configuration file", fs.Arg(0))
	}
	return nil
}

// stopTimeout is how long the services of a process may take to stop one after the other, stopGrace how long what is
// left of them then has, all at once. The sum is below the ten seconds that service managers give.
const (
	stopTimeout = 7 * time.Second
	stopGrace   = 2 * time.Second
)

// ErrUnstopped means that a service did not stop in time. Its goroutines still run, so the process has to end.
var ErrUnstopped = errors.New("did not stop in time")

// Together runs services in one process, each with its own connection and its own metrics label, behind one HTTP
// address. When ctx ends they are stopped one after the other in the given order. If one fails, the others are stopped
// and its error is returned. Together returns in any case: what does not stop is named in an ErrUnstopped.
func Together(ctx context.Context, common Common, stderr io.Writer, listening func(net.Addr), services ...Service) error {
	registry, health, log := Registry(), NewHealth(), common.NewLogger(stderr)
	all, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer fail(nil)
	meterDisk(registry, common.DataDir)
	guards := &guards{}
	defer guards.close()
	processes := processesOf(services, common, registry, health, log, guards)
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
	running.Go(func() error {
		disk.KeepReserve(web, common.DataDir, log)
		return nil
	})
	running.Go(func() error {
		trimMemory(web)
		return nil
	})
	running.Go(func() error {
		setGCPercent(web)
		return nil
	})
	stops, ends := make([]context.CancelFunc, len(services)), make([]chan struct{}, len(services))
	for i, s := range services {
		own, cancel := context.WithCancel(all)
		stops[i], ends[i] = cancel, make(chan struct{})
		running.Go(func() error {
			defer close(ends[i])
			err := work(own, s, processes[i])
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
	stopInOrder(stops, ends)
	stopWeb()
	var late []string
	for i, s := range services {
		if !closed(ends[i]) {
			late = append(late, s.Name())
		}
	}
	if len(late) > 0 {
		logStacks(log)
		return errors.Join(context.Cause(all), fmt.Errorf("%s %w", strings.Join(late, ", "), ErrUnstopped))
	}
	return running.Wait()
}

// processesOf enters all services as starting, before anybody can ask whether they are ready.
func processesOf(services []Service, common Common, registry *prometheus.Registry, health *Health, log *slog.Logger, g *guards) []Process {
	processes, records := make([]Process, len(services)), bus.NewRecords()
	for i, s := range services {
		g.services = append(g.services, s.Name())
		p := Process{
			Common: common, Log: log.With("service", s.Name()), health: health, service: s.Name(), guards: g, records: records,
			Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"service": s.Name()}, registry),
		}
		p.meter = newBusMeter(p.Metrics)
		p.starting()
		processes[i] = p
	}
	return processes
}

// stopInOrder stops one service after the other, and what is late all at once.
func stopInOrder(stops []context.CancelFunc, ends []chan struct{}) {
	wait := func(deadline <-chan time.Time, ended <-chan struct{}) {
		select {
		case <-ended:
		case <-deadline:
		}
	}
	deadline, grace := make(chan time.Time), make(chan time.Time)
	time.AfterFunc(stopTimeout, func() { close(deadline) })
	time.AfterFunc(stopTimeout+stopGrace, func() { close(grace) })
	for i, stop := range stops {
		stop()
		wait(deadline, ends[i])
	}
	for _, ended := range ends {
		wait(grace, ended)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// logStacks logs what the goroutines of a process that does not stop wait for.
func logStacks(log *slog.Logger) {
	stacks := make([]byte, 1<<20)
	log.Warn("services do not stop: this is where they are", "stacks", string(stacks[:runtime.Stack(stacks, true)]))
}

// stuckFor is how long the bus may store nothing before the process gives up: the supervisor that restarts it restarts
// the bus, too.
const stuckFor = 30 * time.Second

// watchStuck cancels all services if the bus stores nothing for stuckFor.
func watchStuck(ctx context.Context, health *Health, fail func(error)) error {
	var since time.Time
	for range tick.After(ctx, stuckFor/6) {
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
	return nil
}

var errStarting = errors.New("starting")

func (p Process) starting() { p.health.set(p.service+"/started", func() error { return errStarting }) }
