package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	library "github.com/switchyard-dl/switchyard/libs/python"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/services/admission"
	"github.com/switchyard-dl/switchyard/services/energy"
	"github.com/switchyard-dl/switchyard/services/executor"
	"github.com/switchyard-dl/switchyard/services/experiments"
	"github.com/switchyard-dl/switchyard/services/nodeagent"
	"github.com/switchyard-dl/switchyard/services/planner"
	"github.com/switchyard-dl/switchyard/services/profiler"
)

// services are all seven, in the order in which they are stopped: first nothing new is accepted or decided, then what runs is left in good order.
func services() []run.Service {
	return []run.Service{experiments.New(), admission.New(), planner.New(), profiler.New(), executor.New(), nodeagent.New(), energy.New()}
}

func (a *app) upCommand() *cobra.Command {
	var common run.Common
	var port int
	all := services()
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the seven services on this machine, around an embedded bus",
		Long: `Runs experiments, admission, profiler, planner, executor, node agent and energy in one process, around an embedded nats-server that keeps everything on disk. Jobs are
processes of this machine and go on when this process is stopped or killed: the next ` + "`switchyard up`" + ` finds them again.

Whoever can connect to the bus can run commands as the user of this process: it listens on loopback only.
Every flag can be set by the environment: --log-level is SWITCHYARD_LOG_LEVEL. With --nats the services join that bus and none is embedded.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			environ := slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "SWITCHYARD_NATS=") })
			if err := run.ApplyEnv(cmd.Flags(), environ); err != nil {
				return failure(ExitUsage, "", "%v", err)
			}
			if err := validate(common, all); err != nil {
				return failure(ExitUsage, "", "%v", err)
			}
			if cmd.Flags().Changed("nats") {
				port = -1
			}
			if err := a.giveLibrary(cmd.Flags(), common.DataDir); err != nil {
				return runtime(err)
			}
			for {
				err := a.up(cmd.Context(), common, port, all)
				if port < 0 || !errors.Is(err, bus.ErrStuck) {
					return runtime(err)
				}
				_, _ = fmt.Fprintf(a.stderr, "starting the bus and the services again: %v\n", err)
			}
		},
	}
	fs := cmd.Flags()
	common.Flags(fs)
	fs.IntVar(&port, "port", 4222, "port of the embedded bus on 127.0.0.1 (0: a free one)")
	for _, s := range all {
		s.Flags(fs)
	}
	return cmd
}

// giveLibrary puts the Python packages beside the jobs, so that a script can import them with nothing installed.
func (a *app) giveLibrary(fs *pflag.FlagSet, dataDir string) error {
	if fs.Changed("python-path") {
		return nil
	}
	dir := filepath.Join(dataDir, "python")
	if err := unpack(dir, library.Files); err != nil {
		return err
	}
	return fs.Set("python-path", dir)
}

func validate(common run.Common, all []run.Service) error {
	errs := []error{common.Validate()}
	for _, s := range all {
		errs = append(errs, s.Validate(common))
	}
	return errors.Join(errs...)
}

// up runs everything until ctx ends: first the bus, last the bus.
func (a *app) up(ctx context.Context, common run.Common, port int, all []run.Service) error {
	unlock, err := lockDir(common.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	log := common.NewLogger(a.stderr)
	if port >= 0 {
		s, err := busserver.Start(busserver.Options{Port: port, Dir: filepath.Join(common.DataDir, "bus")})
		if err != nil {
			return err
		}
		defer s.Stop()
		common.NATS = s.URL()
	}
	if err := furnish(ctx, common); err != nil {
		return err
	}
	return run.Together(ctx, common, a.stderr, func(web net.Addr) {
		p := place{NATS: common.NATS, HTTP: "http://" + web.String(), DataDir: common.DataDir, PID: os.Getpid()}
		if err := writeContext(a.contextPath(), p); err != nil {
			log.Warn("other commands need --nats", "error", err)
		}
		log.Info("switchyard is up", "nats", p.NATS, "http", p.HTTP, "data_dir", p.DataDir)
	}, all...)
}

// furnish makes streams and buckets before anybody is told where the bus is.
func furnish(ctx context.Context, common run.Common) error {
	b, err := bus.Connect(ctx, bus.Config{URL: common.NATS, Name: "up"})
	if err != nil {
		return err
	}
	defer b.Close()
	return b.Ensure(ctx)
}

// lockDir makes sure that one process at a time works on a data folder. The lock goes with the process, however it ends.
func lockDir(dir string) (func(), error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make --data-dir: %w", err)
	}
	path := filepath.Join(dir, "up.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, failure(ExitError, "stop it, or give this one a --data-dir of its own", "another `switchyard up` works on %s", dir)
	}
	return func() { _ = f.Close() }, nil
}

func (a *app) busCommand() *cobra.Command {
	var port int
	var dir string
	cmd := &cobra.Command{
		Use:   "bus",
		Short: "Run the embedded bus alone, for services that are processes of their own",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			unlock, err := lockDir(dir)
			if err != nil {
				return runtime(err)
			}
			defer unlock()
			s, err := busserver.Start(busserver.Options{Port: port, Dir: filepath.Join(dir, "bus")})
			if err != nil {
				return runtime(err)
			}
			defer s.Stop()
			_, _ = fmt.Fprintf(a.stdout, "%s\n", s.URL())
			<-cmd.Context().Done()
			return nil
		},
	}
	cmd.Flags().IntVar(&port, "port", 4222, "port on 127.0.0.1 (0: a free one, printed)")
	cmd.Flags().StringVar(&dir, "data-dir", run.DefaultDataDir(), "folder for the bus's files")
	return cmd
}
