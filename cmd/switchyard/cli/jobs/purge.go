package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/jobfiles"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// purgeOptions say what goes.
type purgeOptions struct {
	dataDir   string
	keep      time.Duration
	snapshots bool
	dryRun    bool
}

// purged says what happened, or would happen, to the folder of a job.
type purged struct {
	Job train.JobID `json:"job"`
	// EndedAt is zero for a job of which nothing is known any more.
	EndedAt time.Time  `json:"ended_at,omitzero"`
	Freed   unit.Bytes `json:"freed_bytes"`
}

func purgeCommand(a *console.Console) *cobra.Command {
	var o purgeOptions
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove the folders of jobs that ended long ago from this machine",
		Long: `Removes the output and the working folders of jobs that ended longer than --keep ago from this machine's data folder. Snapshots stay unless
--snapshots is given: trained models are there. Folders that a submission names itself are never touched. --dry-run shows what would go.`,
		Example: `  switchyard purge --dry-run
  switchyard purge --keep 168h --snapshots`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.keep < train.KeepEnded {
				return exit.Usagef("--keep %s: want %s or more", o.keep, train.KeepEnded)
			}
			o.dataDir = cmp.Or(o.dataDir, a.DataDir())
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error { return purge(ctx, a, b, o, time.Now()) })
		},
	}
	fs := cmd.Flags()
	console.DataDirFlag(fs, &o.dataDir, "data folder")
	fs.DurationVar(&o.keep, "keep", 30*24*time.Hour, "time after its end for which a job's folder is kept")
	fs.BoolVar(&o.snapshots, "snapshots", false, "also remove snapshots")
	fs.BoolVar(&o.dryRun, "dry-run", false, "only show what would be removed")
	return cmd
}

// purge goes through the folders of this machine. It reports a folder that it cannot remove, and goes on.
func purge(ctx context.Context, a *console.Console, b *bus.Bus, o purgeOptions, now time.Time) error {
	jobs, err := console.OpenBucket(ctx, b, contract.Jobs)
	if err != nil {
		return err
	}
	layout := installation.Layout{DataDir: o.dataDir}
	folders, err := os.ReadDir(filepath.Dir(layout.Job("x")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the folders of jobs: %w", err)
	}
	gone, sum := []purged{}, unit.Bytes(0)
	var errs []error
	for _, f := range folders {
		id := train.JobID(f.Name())
		ended, over, err := endedBefore(ctx, jobs, id, layout.Job(id), now.Add(-o.keep))
		if err != nil {
			return err
		}
		if !over {
			continue
		}
		p := purged{Job: id, EndedAt: ended}
		p.Freed, err = purgeFolder(layout, id, o)
		errs = append(errs, err)
		if p.Freed > 0 {
			gone, sum = append(gone, p), sum+p.Freed
		}
	}
	return errors.Join(append(errs, writePurged(a, gone, sum, o.dryRun))...)
}

// endedBefore says whether a job ended before a time and nobody looks after its attempts any more. A job that is not
// in the register, which forgets, is as old as its folder.
func endedBefore(ctx context.Context, jobs *bus.KV[train.Job], id train.JobID, folder string, before time.Time) (ended time.Time, over bool, err error) {
	if _, err := os.Stat(filepath.Join(folder, "attempts")); err == nil {
		return time.Time{}, false, nil
	}
	job, err := jobs.Get(ctx, string(id))
	if errors.Is(err, bus.ErrNotFound) {
		info, err := os.Stat(folder)
		return time.Time{}, err == nil && info.IsDir() && info.ModTime().Before(before), nil
	}
	if err != nil {
		return time.Time{}, false, err
	}
	ended = job.Value.FinishedAt
	return ended, job.Value.State.Terminal() && !ended.IsZero() && ended.Before(before), nil
}

// purgeFolder removes what a job's folder holds, and the folder itself unless snapshots in it stay.
func purgeFolder(layout installation.Layout, id train.JobID, o purgeOptions) (freed unit.Bytes, err error) {
	entries, err := os.ReadDir(layout.Job(id))
	if err != nil {
		return 0, fmt.Errorf("list the folder of %s: %w", id, err)
	}
	left := !o.snapshots && sizeOf(jobfiles.Checkpoints(layout, id))+sizeOf(layout.Snapshots(id)) > 0
	for _, e := range entries {
		if left && jobfiles.Resumes(e.Name()) {
			continue
		}
		path := filepath.Join(layout.Job(id), e.Name())
		size := sizeOf(path)
		if !o.dryRun {
			err = os.RemoveAll(path)
		}
		if err != nil {
			return freed, fmt.Errorf("remove %s: %w", path, err)
		}
		freed += size
	}
	if left || o.dryRun {
		return freed, nil
	}
	return freed, os.Remove(layout.Job(id))
}

// sizeOf returns the size of the files below a path. Files that cannot be read count nothing.
func sizeOf(path string) unit.Bytes {
	sum := unit.Bytes(0)
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // the size is for a person
		}
		if info, err := d.Info(); err == nil {
			sum += unit.Bytes(info.Size())
		}
		return nil
	})
	return sum
}

func writePurged(a *console.Console, gone []purged, sum unit.Bytes, dryRun bool) error {
	if a.Output == "json" {
		return a.PrintJSON(gone)
	}
	err := a.Table("JOB\tENDED\tSIZE", func(w io.Writer) {
		for _, p := range gone {
			ended := "-"
			if !p.EndedAt.IsZero() {
				ended = p.EndedAt.Format(time.DateTime)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", render.EscapeText(string(p.Job)), ended, p.Freed)
		}
	})
	if err != nil {
		return err
	}
	verb := "removed"
	if dryRun {
		verb = "would be removed"
	}
	_, err = fmt.Fprintf(a.Stdout, "%s of %s %s\n", sum, render.Plural(len(gone), "job"), verb)
	return err
}
