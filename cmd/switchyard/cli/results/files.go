// Package results holds the commands that find and show what jobs have produced: files, metrics, curves.
package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Commands returns get, plot and tensorboard.
func Commands() []console.Command {
	return []console.Command{getCommand, plotCommand, tensorboardCommand}
}

// metricsName is a file that is made from the facts of the job.
const metricsName = "metrics.csv"

// askTimeout bounds one question to an executor.
const askTimeout = 10 * time.Second

var errNotStarted = errors.New("the job has not started: it has no files")

// errOfPods says where the files of a job on Kubernetes are.
func errOfPods(job train.JobID) error {
	return exit.Errorf(exit.Failed, fmt.Sprintf("`switchyard get %s metrics.csv` works; checkpoints lie below snapshots_dir of the job, or executor.pod_snapshots_root", job),
		"the files of pods stay in their volumes")
}

// Ask asks the executor of a job's machine for its files.
func Ask(ctx context.Context, y console.Yard, r rpc.FileRequest) (rpc.FileAnswer, error) {
	machine, err := machineOf(ctx, y, r.Job)
	if err != nil {
		return rpc.FileAnswer{}, err
	}
	return ask(ctx, y, machine, r)
}

func ask(ctx context.Context, y console.Yard, machine train.NodeID, r rpc.FileRequest) (rpc.FileAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return y.Files(ctx, machine, r)
}

// machineOf returns the machine on which the files of a job are.
func machineOf(ctx context.Context, y console.Yard, job train.JobID) (train.NodeID, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	standing, err := y.Standing(ctx, job)
	switch {
	case err != nil:
	case standing.Pods:
		err = errOfPods(job)
	case standing.Home == "":
		err = errNotStarted
	}
	return standing.Home, err
}

func getCommand(a *console.Console) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "get JOB [FILE..]",
		Short: "List the files of a job, or fetch some of them",
		Long: `Lists what a job has written, with the folders on its machine: its checkpoints and the files of its working folder. With FILE, as the list names it,
it fetches that file from the job's machine. metrics.csv is made from what the job has reported: a row per epoch. Pods' files stay in their volumes.`,
		Example: `  switchyard get first
  switchyard get first checkpoints/model.pt metrics.csv --to results
  switchyard get first metrics.csv --to -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				job, err := y.Find(ctx, args[0], exit.Failed)
				if err != nil {
					return err
				}
				if len(args) == 1 {
					return list(ctx, a, y, job)
				}
				for _, name := range args[1:] {
					if err := get(ctx, a, y, job, name, to); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", ".", "folder to put files in, or - for standard output")
	return cmd
}

func list(ctx context.Context, a *console.Console, y console.Yard, job train.Job) error {
	answer, err := Ask(ctx, y, rpc.FileRequest{Job: job.ID})
	if err != nil {
		return err
	}
	if a.Output == "json" {
		return a.PrintJSON(answer)
	}
	f := answer.Folders
	fmt.Fprintf(a.Stderr, "on node %s\n", f.Machine)
	for _, line := range [][2]string{{"checkpoints", f.Checkpoints}, {"work", f.Work}, {"output", f.Output}} {
		if line[1] != "" {
			fmt.Fprintf(a.Stderr, "  %-11s %s\n", line[0], render.EscapeText(line[1]))
		}
	}
	err = a.Table("FILE\tSIZE\tCHANGED", func(w io.Writer) {
		now := time.Now()
		fmt.Fprintf(w, "%s\t-\t-\n", metricsName)
		for _, file := range answer.Files {
			fmt.Fprintf(w, "%s\t%s\t%s\n", render.EscapeText(file.Path), file.Size, render.Clock(file.ChangedAt, now))
		}
	})
	if answer.More {
		fmt.Fprintln(a.Stderr, "older files are not shown: see the folders above")
	}
	return err
}

// get fetches one file. It has its name once it is complete.
func get(ctx context.Context, a *console.Console, y console.Yard, job train.Job, name, to string) (err error) {
	content := func(w io.Writer) error { return fetch(ctx, y, job.ID, name, w) }
	if name == metricsName {
		content = func(w io.Writer) error { return writeMetrics(ctx, y, job, w) }
	}
	if to == "-" {
		return content(render.Raw(a.Stdout))
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return exit.Errorf(exit.Failed, "name another folder with --to", "make the folder: %v", err)
	}
	path := filepath.Join(to, filepath.Base(name))
	f, err := os.CreateTemp(to, "."+filepath.Base(name)+".*")
	if err != nil {
		return exit.Errorf(exit.Failed, "name another folder with --to", "write %s: %v", path, err)
	}
	err = errors.Join(content(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	fmt.Fprintln(a.Stdout, path)
	return nil
}

// fetch copies a file piece by piece. A file that shrinks meanwhile is an error: a job is writing it again.
func fetch(ctx context.Context, y console.Yard, job train.JobID, name string, w io.Writer) error {
	machine, err := machineOf(ctx, y, job)
	if err != nil {
		return err
	}
	size := int64(-1)
	for at := int64(0); at != size; {
		piece, err := ask(ctx, y, machine, rpc.FileRequest{Job: job, Path: name, Offset: at})
		if err != nil {
			return err
		}
		if size < 0 {
			size = piece.Size
		}
		data := piece.Data[:min(int64(len(piece.Data)), size-at)]
		if at += int64(len(data)); piece.Size < size || len(data) == 0 && at < size {
			return exit.Errorf(exit.Failed, "try again", "%s changed while it was fetched", name)
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}
