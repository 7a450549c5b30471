// Package install makes a machine a server for several people: a user without rights for the service, two units of
// systemd, a configuration, and the public key by which the launcher knows what admission has signed.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/install/units"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/sibling"
)

// options are those of the command.
type options struct {
	user, group, dataDir string
	// jobDisk is in GiB.
	jobDisk int
	// root is put before the path of each file: of packages, and tests.
	root             string
	print, uninstall bool
	purge            bool
	// packaged makes only what a package cannot bring.
	packaged bool
	// programs is the folder with the programs.
	programs string
}

// Command makes the command.
func Command(a *console.Console) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Make this machine a server for several people: units of systemd, a user, a configuration",
		Long: `Makes a user without rights for the service, and writes two units of systemd: switchyard.service, which schedules, and
switchyard-launcher.service, which starts each job as the user who submitted it and alone has rights of root. It starts nothing,
and says what to do next. A configuration that is there stays. --print writes nothing and shows all of it.`,
		Example: "  switchyard install --print\n  sudo switchyard install --group gpu\n  sudo switchyard install --uninstall",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), a.Stdout, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.user, "user", units.User, "user of the service; it is made if it is not there")
	f.StringVar(&o.group, "group", "", "group whose members may use the service (default: everybody on this machine)")
	f.StringVar(&o.dataDir, "data-dir", units.DataDir, "folder of the service")
	f.IntVar(&o.jobDisk, "job-disk", 0, "GiB that the own folders of a job may take together, by project quotas of the file system (0: any)")
	f.StringVar(&o.root, "root", "", "write the files below this folder, and make no user: for packages")
	f.StringVar(&o.programs, "programs", "", "folder with the programs (default: that of this one)")
	f.BoolVar(&o.packaged, "packaged", false, "make only the user and the key, for the scripts of packages, which bring the rest")
	f.BoolVar(&o.print, "print", false, "show what would be done, and do nothing")
	f.BoolVar(&o.uninstall, "uninstall", false, "take it back; data and configuration stay")
	f.BoolVar(&o.purge, "purge", false, "with --uninstall: remove the data of service and jobs, the configuration and the user, too")
	return cmd
}

// step is one change of the machine.
type step struct {
	// says what it does; shows is the text that it writes.
	says, shows string
	do          func(ctx context.Context) error
}

func run(ctx context.Context, out io.Writer, o options) error {
	if err := o.settle(); err != nil {
		return err
	}
	steps, next := o.steps(), o.next()
	if o.uninstall {
		steps, next = o.undo(), "Files in people's homes are theirs, and stay.\n"
	}
	for _, s := range steps {
		if o.print {
			fmt.Fprintf(out, "would %s\n", s.says)
			for line := range strings.Lines(s.shows) {
				fmt.Fprintf(out, "    %s", line)
			}
			continue
		}
		if err := s.do(ctx); err != nil {
			return exit.Errorf(exit.Failed, "what was done before stays; mend this and run it again", "%s: %v", s.says, err)
		}
		fmt.Fprintf(out, "done: %s\n", s.says)
	}
	fmt.Fprint(out, "\n", next)
	return nil
}

// check refuses what would be no word of a unit.
func (o *options) check() error {
	name := regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`) // of users and groups
	if !name.MatchString(o.user) || o.user == "root" || o.group != "" && !name.MatchString(o.group) {
		return exit.Usagef("want names of a user and a group such as switchyard and gpu, and not root: found %q and %q", o.user, o.group)
	}
	for _, path := range []string{o.dataDir, o.root, o.programs} {
		if path != "" && (!filepath.IsAbs(path) || strings.ContainsAny(path, " \t\n%\"'\\$")) {
			return exit.Usagef("%q: want an absolute path without spaces and signs that systemd reads", path)
		}
	}
	if o.jobDisk < 0 || o.jobDisk > 0 && o.packaged {
		return exit.Usagef("--job-disk: want a number of GiB, without --packaged: the unit of a package takes it in a drop-in")
	}
	if o.purge && !o.uninstall {
		return exit.Usagef("--purge is for --uninstall")
	}
	return nil
}

// settle checks the options and finds the programs.
func (o *options) settle() error {
	if err := o.check(); err != nil {
		return err
	}
	if o.packaged {
		o.programs = units.Packaged().Programs
	}
	if o.programs == "" {
		server, err := sibling.FindServer()
		if err == nil {
			server, err = filepath.EvalSymlinks(server)
		}
		if err != nil {
			return err
		}
		o.programs = filepath.Dir(server)
	}
	if err := o.notPackaged(); err != nil || o.print {
		return err
	}
	if os.Geteuid() != 0 && o.root == "" {
		return exit.Errorf(exit.Failed, "sudo switchyard install; or --print, to see what it would do", "only root can install")
	}
	if o.uninstall || o.root != "" {
		return nil
	}
	return ownedByRoot(filepath.Join(o.programs, sibling.Server), filepath.Join(o.programs, sibling.Supervisor))
}

// notPackaged refuses to do by hand what a package has done.
func (o *options) notPackaged() error {
	unit := units.Packaged().Services()[0].Path
	if _, err := os.Stat(unit); err != nil || o.packaged || o.root != "" || o.programs != units.Packaged().Programs {
		return nil //nolint:nilerr // without the unit there is no package
	}
	return exit.Errorf(exit.Failed, "systemctl enable --now "+units.Launcher+" "+units.Service, "a package has installed the service: %s is its unit", unit)
}

var errOwned = errors.New("others than root can change it, and root is to run it")

// ownedByRoot checks that nobody but root can put another program in the place of one.
func ownedByRoot(programs ...string) error {
	for _, program := range programs {
		for path := program; ; path = filepath.Dir(path) {
			var s unix.Stat_t
			err := unix.Stat(path, &s)
			if err == nil && (s.Uid != 0 || s.Mode&0o022 != 0) && s.Mode&unix.S_ISVTX == 0 {
				err = errOwned
			}
			if err != nil {
				return exit.Errorf(exit.Failed, "sudo install switchyard switchyard-server switchyard-supervisor /usr/local/bin, and run that one", "%s: %v", path, err)
			}
			if path == "/" {
				break
			}
		}
	}
	return nil
}

// at returns where a file is written.
func (o *options) at(path string) string { return filepath.Join(o.root, path) }

// file is a step that writes a file of root which all may read.
func (o *options) file(f units.File) step {
	return step{says: "write " + o.at(f.Path), shows: f.Text, do: func(context.Context) error {
		if err := os.MkdirAll(filepath.Dir(o.at(f.Path)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(o.at(f.Path), []byte(f.Text), 0o644)
	}}
}

// remove is a step that removes files and folders.
func (o *options) remove(paths ...string) step {
	at := make([]string, len(paths))
	for i, path := range paths {
		at[i] = o.at(path)
	}
	return step{says: "remove " + strings.Join(at, " "), do: func(context.Context) error {
		errs := make([]error, len(at))
		for i, path := range at {
			errs[i] = os.RemoveAll(path)
		}
		return errors.Join(errs...)
	}}
}

// command is a step that runs a program of the system, if there is any need.
func (o *options) command(needed func() bool, args ...string) step {
	return step{says: "run " + strings.Join(args, " "), do: func(ctx context.Context) error {
		if o.root != "" || !needed() {
			return nil
		}
		if said, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(said)))
		}
		return nil
	}}
}

// steps are those of an installation. The units come last: with them, a start is possible.
func (o *options) steps() []step {
	steps := []step{
		o.command(func() bool { return !known("passwd", o.user) }, "useradd", "--system", "--user-group", "--home-dir", o.dataDir, "--no-create-home", "--shell", "/usr/sbin/nologin", o.user),
	}
	if o.group != "" {
		steps = append(steps, o.command(func() bool { return !known("group", o.group) }, "groupadd", "--system", o.group))
	}
	if o.packaged {
		return append(steps, o.keys())
	}
	steps = append(steps, o.library(), o.keys(), o.configuration())
	for _, unit := range o.place().Services() {
		steps = append(steps, o.file(unit))
	}
	return steps
}

// known reports whether a list of the machine has a name.
func known(list, name string) bool { return exec.Command("getent", list, name).Run() == nil }

// undo are the steps that take an installation back.
func (o *options) undo() []step {
	booted := func() bool { _, err := os.Stat("/run/systemd/system"); return err == nil }
	written := []string{units.KeyPath, libraryDir}
	for _, unit := range o.place().Services() {
		written = append(written, unit.Path)
	}
	steps := []step{
		o.command(booted, "systemctl", "disable", "--now", units.Service, units.Launcher),
		o.remove(written...),
		o.command(booted, "systemctl", "daemon-reload"),
	}
	if o.purge {
		steps = append(steps, o.remove(o.dataDir, units.JobsDir, units.ConfigPath), o.command(func() bool { return known("passwd", o.user) }, "userdel", o.user))
	}
	return steps
}

// next says what to do after an installation.
func (o *options) next() string {
	who := "All users of this machine can submit jobs now, each as himself"
	if o.group != "" {
		who = fmt.Sprintf("Let people submit jobs, each as himself: usermod --append --groups %s NAME (they log in again)", o.group)
	}
	return fmt.Sprintf(`Next:
  systemctl daemon-reload
  systemctl enable --now %s %s
  journalctl -u switchyard -u switchyard-launcher -f
%s: switchyard submit -- COMMAND
Settings are in %s, which is yours: it is not written again.
`, units.Launcher, units.Service, who, o.at(units.ConfigPath))
}
