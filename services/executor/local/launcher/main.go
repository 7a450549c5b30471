package launcher

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/disk"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
	"github.com/switchyard-dl/switchyard/services/executor/local/trash"
)

// Command is the first argument of a program that is to be the launcher.
const Command = "launcher"

var errNotRoot = errors.New("the launcher needs the rights of root: systemd starts it, as `switchyard install` says")

// Main runs the launcher until it is asked to end. Jobs run on.
func Main(args []string, stderr io.Writer) error {
	var c Config
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.Service, "user", "switchyard", "user of the service, who alone may ask")
	flags.StringVar(&c.Socket, "socket", "/run/switchyard-launcher/launcher.sock", "where he asks")
	flags.StringVar(&c.Jobs, "jobs", "/var/lib/switchyard-jobs", "folder of all jobs' files")
	flags.StringVar(&c.Key, "key", "/etc/switchyard/admission.pub", "public half of admission's key, a file of root")
	flags.StringVar(&c.PythonPath, "python-path", "", "folder that is added to the PYTHONPATH of jobs")
	flags.BoolVar(&c.Mounts, "mounts", true, "give jobs a file system of their own, with /custom, /snapshots and /data")
	flags.IntVar(&c.Disk, "job-disk", 0, "GiB that the own folders of a job may take together, by project quotas of the file system (0: any)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer cancel()
	l, err := open(ctx, c, slog.New(slog.NewTextHandler(stderr, nil)))
	if err != nil {
		return err
	}
	listener, err := l.listen(ctx)
	if err != nil {
		return err
	}
	l.log.Info("launching jobs as their users", "for", l.service.Name, "socket", c.Socket, "from_uid", l.firstUID, "groups", l.trees)
	l.serve(ctx, listener)
	return nil
}

// open checks what the launcher relies on.
func open(ctx context.Context, c Config, log *slog.Logger) (*Launcher, error) {
	if os.Geteuid() != 0 {
		return nil, errNotRoot
	}
	unix.Umask(0o022)
	service, err := lookUp(ctx, c.Service)
	if err != nil {
		return nil, err
	}
	l := &Launcher{config: c, service: service, firstUID: firstPerson("/etc/login.defs"), trash: trash.In(c.Jobs), log: log}
	if _, err := readKey(c.Key); err != nil {
		return nil, err
	}
	if l.trees, err = cgroup.ThisMachine().OpenTrees(); err != nil {
		return nil, err
	}
	if err := makeFolder(c.Jobs, 0, service.GID, passedMode); err != nil {
		return nil, fmt.Errorf("make the folder of jobs: %w", err)
	}
	if c.Disk > 0 {
		if err := disk.Quotas(c.Jobs); err != nil {
			return nil, fmt.Errorf("--job-disk %d: %w", c.Disk, err)
		}
	}
	if c.Mounts {
		err := service.tryProcesses(ctx)
		if l.processes = err == nil; err != nil {
			log.Warn("jobs see the processes of others, as everybody on this machine does", "error", err)
		}
	}
	return l, nil
}

// listen listens on the socket, which the service alone may open.
func (l *Launcher) listen(ctx context.Context) (*net.UnixListener, error) {
	listener, err := installation.ListenUnix(ctx, l.config.Socket)
	if err != nil {
		return nil, err
	}
	at, is := listener.(*net.UnixListener)
	if err := os.Lchown(l.config.Socket, l.service.UID, l.service.GID); err != nil || !is {
		return nil, errors.Join(errNoSocket, err)
	}
	return at, nil
}

var errNoSocket = errors.New("listen for the service")
