package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/busserver/backup"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/run"
)

func (a *app) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Write all that the bus holds into a file, while it works",
		Long: `Writes every stream and bucket of the bus into one file: jobs, facts, plans, energy, experiments and uploaded folders. Services and jobs go on meanwhile. A message
that the server cannot read is an error, and the file is read once more when it is complete.

Not in the file: the output, working folders, checkpoints and secrets of jobs. They are files below the data folder (jobs, snapshots), which a file system's backup covers.`,
		Example: `  switchyard backup /backup/switchyard-$(date +%F).tar
  switchyard restore /backup/switchyard-2026-01-31.tar --data-dir /var/lib/switchyard`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				_, err := backup.Write(ctx, b, path, time.Now(), func(string) bool { return true })
				if err != nil {
					return unwritten(err)
				}
				return a.tellBackup(path)
			})
		},
	}
}

// unwritten says what to do about a backup that was not written.
func unwritten(err error) error {
	_, path := errors.AsType[*fs.PathError](err)
	_, link := errors.AsType[*os.LinkError](err)
	switch {
	case path || link:
		return exit.Errorf(exit.Failed, "name a file in a folder that exists and has room", "%v", err)
	case errors.Is(err, bus.ErrAway):
		return exit.Errorf(exit.Unreachable, "make the backup again when the bus is back", "%v", err)
	case errors.Is(err, context.Canceled):
		return err
	}
	return exit.Errorf(exit.Failed, "`switchyard repair` says what is damaged", "%v", err)
}

// tellBackup reads a backup back and prints what it holds.
func (a *app) tellBackup(path string) error {
	_, messages, err := backup.Check(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	sum := 0
	for _, n := range messages {
		sum += n
	}
	fmt.Fprintf(a.Stdout, "%s: %d streams and buckets, %d messages, %d bytes\n", path, len(messages), sum, info.Size())
	return nil
}

func (a *app) restoreCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the bus of a data folder from a backup",
		Long: `Makes the embedded bus of a data folder from a file of ` + "`switchyard backup`" + `. The folder must have no bus: stop ` + "`switchyard up`" + ` and move its folder "bus" away first. The next ` +
			"`switchyard up`" + ` goes on from the backup.
It folds the facts that are newer than the records into them. Jobs that ran then and do not run on this machine now are started again from their checkpoints, if these are here.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir = cmp.Or(dir, a.DataDir())
			head, err := restore(cmd.Context(), args[0], dir)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Stdout, "%s holds the bus of %s; start it: switchyard up --data-dir %s\n", dir, head.At.Local().Format(time.DateTime), dir)
			return nil
		},
	}
	console.DataDirFlag(cmd.Flags(), &dir, "data folder to restore into")
	return cmd
}

// restore makes the bus in a folder beside its place, and moves it there once it is complete.
func restore(ctx context.Context, path, dir string) (head backup.Head, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return head, err
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return head, err
	}
	defer unlock()
	place := filepath.Join(dir, "bus")
	if _, err := os.Stat(place); !errors.Is(err, os.ErrNotExist) {
		return head, exit.Errorf(exit.Failed, "move it away, or name another --data-dir", "%s is there: a restore overwrites nothing", place)
	}
	making := filepath.Join(dir, "bus.restoring") // what is there, a restore that was killed has left
	if err := errors.Join(os.RemoveAll(making), os.Mkdir(making, 0o700)); err != nil {
		return head, err
	}
	defer func() { _ = os.RemoveAll(making) }()
	if head, err = restoreInto(ctx, path, making); err != nil {
		return head, err
	}
	// What services saw of another bus, and the newest plan followed of it, count no more.
	forget := errors.Join(os.RemoveAll(filepath.Join(dir, run.SeenFolder)), os.RemoveAll(filepath.Join(dir, "executor.generation")))
	if err := errors.Join(forget, os.Rename(making, place), installation.SyncFolder(dir)); err != nil {
		return head, err
	}
	return head, nil
}

func restoreInto(ctx context.Context, path, dir string) (head backup.Head, err error) {
	s, err := busserver.Start(busserver.Options{Dir: dir})
	if err != nil {
		return head, err
	}
	defer s.Stop()
	b, err := bus.Connect(ctx, bus.Config{Name: "restore", Here: s})
	if err != nil {
		return head, err
	}
	defer b.Close()
	return backup.Restore(ctx, b, path, time.Now())
}

const (
	// snapshotsFolder of the data folder holds snapshots of the buckets, the newest snapshotsKept of them.
	snapshotsFolder = "bus-snapshots"
	snapshotsKept   = 6
	// snapshotEvery is the interval between two snapshots.
	snapshotEvery = time.Hour
	// firstSnapshot is the delay of the first one. At its first start an installation has empty buckets.
	firstSnapshot = 30 * time.Second
	snapshotForm  = "2006-01-02T15-04-05Z.tar"
)

// isBucket reports whether a stream is that of a bucket.
func isBucket(stream string) bool { return strings.HasPrefix(stream, "KV_") }
