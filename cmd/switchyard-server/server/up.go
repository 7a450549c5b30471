package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/config"
	"github.com/switchyard-dl/switchyard/libs/disk"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/installation"
	library "github.com/switchyard-dl/switchyard/libs/python"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/admission"
	"github.com/switchyard-dl/switchyard/services/energy"
	"github.com/switchyard-dl/switchyard/services/executor"
	"github.com/switchyard-dl/switchyard/services/experiments"
	"github.com/switchyard-dl/switchyard/services/nodeagent"
	"github.com/switchyard-dl/switchyard/services/planner"
	"github.com/switchyard-dl/switchyard/services/profiler"
	"github.com/switchyard-dl/switchyard/services/web"
)

// services makes all eight, in the order in which they stop: first nothing new is accepted or decided, then running
// jobs are left in good order.
func services(c *settings.All, greet func(link string) bool) []run.Service {
	return []run.Service{
		web.New(c.Web, time.Now).Greets(greet), experiments.New(), admission.New(c.Admission), planner.New(c.Planner), profiler.New(c.Profiler), executor.New(c.Executor), nodeagent.New(c.NodeAgent), energy.New(c.Energy),
	}
}

func (a *app) upCommand() *cobra.Command {
	all, set := settings.New()
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the eight services on this machine, around an embedded bus",
		Long: `Runs web, experiments, admission, profiler, planner, executor, node agent and energy in one process, around an embedded nats-server that keeps everything on disk. Jobs are
processes of this machine and go on when this process is stopped or killed: the next ` + "`switchyard up`" + ` finds them again.

The bus listens on loopback, and lets in who has a key of the folder "keys" in the data folder: keep that to yourself.
Settings come from these flags, from the environment (--log-level is SWITCHYARD_LOG_LEVEL) and from switchyard.yaml, in this order; ` + "`switchyard config show`" + ` prints them all.
With --nats, or bus.url in the file, the services join that bus and none is embedded.`,
		Args: cobra.NoArgs,
	}
	cmd.SetFlagErrorFunc(flagError)
	line := set.CommandLine(cmd.Flags(), nil)
	cmd.SetHelpFunc(helpBySection(set))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// SWITCHYARD_NATS tells the commands which bus to ask. This one makes a bus.
		environ := slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "SWITCHYARD_NATS=") })
		if _, err := line.Load(environ); err != nil {
			return exit.Usagef("%v", err)
		}
		if err := a.giveLibrary(all, set); err != nil {
			return err
		}
		serving := services(all, a.greet)
		if err := validate(all.Common, serving); err != nil {
			return exit.Usagef("%v", err)
		}
		embedded := !set.Given("nats")
		for {
			err := a.up(cmd.Context(), all.Common, embedded, serving)
			if !embedded || !errors.Is(err, bus.ErrStuck) || errors.Is(err, run.ErrUnstopped) {
				return err
			}
			fmt.Fprintf(a.Stderr, "starting the bus and the services again: %v\n", err)
		}
	}
	return cmd
}

// helpBySection prints the flags in the sections of the settings, and then the others.
func helpBySection(set *config.Set) func(*cobra.Command, []string) {
	return func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "%s\n\nUsage:\n  %s\n", cmd.Long, cmd.UseLine())
		group := func(about string, has func(flag *pflag.Flag) bool) {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			cmd.Flags().VisitAll(func(flag *pflag.Flag) {
				if has(flag) {
					flags.AddFlag(flag)
				}
			})
			if flags.HasAvailableFlags() {
				fmt.Fprintf(out, "\n%s\n%s", about, flags.FlagUsages())
			}
		}
		for _, s := range set.Sections() {
			group(s.About, func(flag *pflag.Flag) bool {
				return slices.ContainsFunc(s.Settings, func(x *config.Setting) bool { return x.Name == flag.Name })
			})
		}
		group("Others:", func(flag *pflag.Flag) bool { return set.Find(flag.Name) == nil })
	}
}

// flagError answers a flag of an earlier version with the setting that has taken its place.
func flagError(_ *cobra.Command, err error) error { return exit.Usagef("%v", config.FlagError(err)) }

// giveLibrary writes the Python packages into the data folder, so that scripts can import them without an
// installation.
func (a *app) giveLibrary(all *settings.All, set *config.Set) error {
	if set.Given("python-path") {
		return nil
	}
	dir := filepath.Join(all.DataDir, "python")
	if err := installation.Unpack(dir, library.Files); err != nil {
		return err
	}
	all.Executor.PythonPath = dir
	return nil
}

// greet shows the owner at a terminal the link to the page.
func (a *app) greet(link string) bool {
	if !render.IsTerminal(render.Raw(a.Stderr)) {
		return false
	}
	fmt.Fprintf(a.Stderr, "\nopen the page, once, within ten minutes; later: switchyard open\n  %s\n\n", link)
	return true
}

func validate(common run.Common, all []run.Service) error {
	errs := make([]error, len(all))
	for i, s := range all {
		errs[i] = s.Validate(common)
	}
	return errors.Join(errs...)
}

// up runs everything until ctx ends. The bus starts first and stops last.
func (a *app) up(ctx context.Context, common run.Common, embedded bool, all []run.Service) error {
	unlock, err := lockDir(common.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	log, web := common.NewLogger(a.Stderr), make(chan net.Addr, 1)
	all = append(slices.Clone(all), announcer{web})
	var cuts []busserver.Cut
	if embedded {
		s, err := startBus(common, log)
		if err != nil {
			return err
		}
		defer s.Stop()
		common.NATS, common.Here, cuts = s.URL(), s, s.Cuts
		all = append(all, watchedBus{s}) // it stops last
	}
	furnish(ctx, common, cuts)
	beside, stop := context.WithCancel(ctx)
	var snapshots conc.WaitGroup
	defer func() { stop(); snapshots.Wait() }()
	if embedded {
		snapshots.Go(func() { keepLogged(beside, common, log, func(bus.Loss) {}) }) // a service logs losses
	}
	return run.Together(ctx, common, a.Stderr, func(at net.Addr) { web <- at }, all...)
}

// startBus starts the embedded bus of a data folder, with keys for all who may connect.
func startBus(common run.Common, log *slog.Logger) (*busserver.Server, error) {
	keys := identity.Keys(common.KeysDir())
	if err := keys.Make(); err != nil {
		return nil, err
	}
	accounts, err := keys.Accounts()
	if err != nil {
		return nil, err
	}
	_, newest, err := seenBy(common.DataDir)
	if err != nil {
		return nil, err
	}
	return busserver.Start(busserver.Options{Port: common.Port, Dir: filepath.Join(common.DataDir, "bus"), Accounts: accounts, Log: log, Newest: newest})
}

// furnishTime bounds furnish: if the disk is full, readiness says so, and not the lack of any answer.
const furnishTime = 5 * time.Second

// furnish makes streams and buckets. Each service does so too: this spares them to do it all at once.
func furnish(ctx context.Context, common run.Common, cuts []busserver.Cut) {
	ctx, cancel := context.WithTimeout(ctx, furnishTime)
	defer cancel()
	if b, err := bus.Connect(ctx, bus.Config{URL: common.NATS, Keys: common.KeysDir(), Name: "up"}); err == nil {
		if b.Ensure(ctx) == nil { // who cannot work without says why
			_ = checkData(ctx, b, cuts)
		}
		b.Close()
	}
}

// checkBus notices before services work what is not there any more.
func checkBus(ctx context.Context, common run.Common, cuts []busserver.Cut) {
	ctx, cancel := context.WithTimeout(ctx, furnishTime)
	defer cancel()
	if b, err := bus.Connect(ctx, bus.Config{URL: common.NATS, Keys: common.KeysDir(), Name: "bus"}); err == nil {
		_ = checkData(ctx, b, cuts) // who cannot work says why
		b.Close()
	}
}

// checkData marks streams that have lost their newest facts, or messages in between.
func checkData(ctx context.Context, b *bus.Bus, cuts []busserver.Cut) error {
	var errs []error
	for _, c := range cuts {
		errs = append(errs, b.Damaged(ctx, c.Stream, c.Words))
	}
	return errors.Join(append(errs, b.CheckJobs(ctx))...)
}

// lockDir makes sure that one process at a time works on a data folder, and that its owner can read what that writes.
func lockDir(dir string) (func(), error) {
	if err := ownFolder(dir, os.Geteuid()); err != nil {
		return nil, err
	}
	unlock, err := installation.Lock(dir)
	if errors.Is(err, installation.ErrLocked) {
		return nil, exit.Errorf(exit.Failed, "stop it, or give this one a --data-dir of its own", "another `switchyard up` works on %s", dir)
	}
	return unlock, err
}

// ownFolder returns an error if root would write into the data folder of another user, who could not open its files.
func ownFolder(dir string, uid int) error {
	info, err := os.Stat(dir)
	if err != nil || uid != 0 {
		return nil //nolint:nilerr // the folder is made later
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	if !is || stat.Uid == 0 {
		return nil
	}
	owner := strconv.FormatUint(uint64(stat.Uid), 10)
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	return exit.Errorf(exit.Failed, fmt.Sprintf("run this as %[1]s, with `sudo -u %[1]s`; if systemd runs Switchyard here, `systemctl start switchyard` starts it", owner),
		"%s belongs to %s, who could not open what root writes there", dir, owner)
}

func (a *app) busCommand() *cobra.Command {
	all, set := settings.New()
	mine := func(s *config.Setting) bool { return s.Name == "port" || s.Name == "data-dir" || s.Name == "keys" }
	var line *config.CommandLine
	cmd := &cobra.Command{
		Use:   "bus",
		Short: "Run only the embedded bus, for services in processes of their own",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The other variables are for other commands.
			environ := slices.DeleteFunc(os.Environ(), func(pair string) bool {
				name, _, _ := strings.Cut(pair, "=")
				return !slices.Contains([]string{"SWITCHYARD_PORT", "SWITCHYARD_DATA_DIR", "SWITCHYARD_KEYS", "SWITCHYARD_CONFIG"}, name)
			})
			if _, err := line.Load(environ); err != nil {
				return exit.Usagef("%v", err)
			}
			unlock, err := lockDir(all.DataDir)
			if err != nil {
				return err
			}
			defer unlock()
			log := all.NewLogger(a.Stderr)
			s, err := startBus(all.Common, log)
			if err != nil {
				return err
			}
			defer s.Stop()
			all.NATS = s.URL()
			checkBus(cmd.Context(), all.Common, s.Cuts)
			fmt.Fprintf(a.Stdout, "%s\n", s.URL())
			connect := func(ctx context.Context) (*bus.Bus, error) {
				return bus.Connect(ctx, bus.Config{URL: s.URL(), Keys: all.KeysDir(), Name: "bus", Log: log})
			}
			var keeping conc.WaitGroup
			defer keeping.Wait()
			keeping.Go(func() { disk.KeepReserve(cmd.Context(), all.DataDir, log) })
			keeping.Go(func() { keepLogged(cmd.Context(), all.Common, log, func(l bus.Loss) { bus.LogLoss(log, l) }) })
			return watchedBus{s}.serve(cmd.Context(), log, connect, func() {})
		},
	}
	line = set.CommandLine(cmd.Flags(), mine)
	cmd.SetFlagErrorFunc(flagError)
	cmd.AddCommand(a.accountsCommand(), a.kubernetesCommand())
	return cmd
}
