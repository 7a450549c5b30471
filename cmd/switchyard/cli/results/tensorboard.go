package results

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/rpc"
)

func tensorboardCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "tensorboard JOB.. [-- FLAG..]",
		Short: "Start TensorBoard on the event files of jobs",
		Long: `Finds the TensorBoard event files that the jobs have written on this machine, each under the name of its job, and starts tensorboard on them. What follows --
is passed on. Fetch the files of jobs on other machines first (switchyard get).`,
		Example: `  switchyard tensorboard first second -- --port 6007`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			jobs, flags := args, []string(nil)
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				jobs, flags = args[:dash], args[dash:]
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return tensorboard(ctx, a, y, jobs, flags) })
		},
	}
}

func tensorboard(ctx context.Context, a *console.Console, y console.Yard, refs, flags []string) error {
	jobs, err := console.FindJobs(ctx, y, refs, exit.Failed)
	if err != nil {
		return err
	}
	var specs []string
	for _, job := range jobs {
		answer, err := Ask(ctx, y, rpc.FileRequest{Job: job.ID})
		if err != nil {
			return err
		}
		folders := eventFolders(answer)
		if len(folders) == 0 {
			return exit.Errorf(exit.Failed, "write them below $SWITCHYARD_SNAPSHOTS_DIR or the working folder", "job %s has written no TensorBoard event files (events.out.tfevents.*)", job.ID)
		}
		for name, folder := range folders {
			if _, err := os.Stat(folder); err != nil {
				return exit.Errorf(exit.Failed, "fetch them with `switchyard get "+string(job.ID)+" FILE`", "the event files of %s are on node %s, in %s", job.ID, answer.Folders.Machine, folder)
			}
			specs = append(specs, strings.Trim(string(job.ID)+"/"+name, "/.")+":"+folder)
		}
	}
	words := append([]string{"tensorboard", "--logdir_spec", strings.Join(specs, ",")}, flags...)
	program, err := exec.LookPath("tensorboard")
	if err != nil {
		return exit.Errorf(exit.Failed, "pip install tensorboard, then run: "+render.ShellWords(words), "tensorboard is not in PATH")
	}
	run := exec.CommandContext(ctx, program, words[1:]...)
	run.Stdout, run.Stderr = a.Stdout, a.Stderr
	if err := run.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("run tensorboard: %w", err)
	}
	return nil
}

// eventFolders returns the folders with event files, by their path in the list of files.
func eventFolders(answer rpc.FileAnswer) map[string]string {
	folders := map[string]string{}
	for _, f := range answer.Files {
		if !strings.HasPrefix(path.Base(f.Path), "events.out.tfevents.") {
			continue
		}
		root, within, _ := strings.Cut(path.Dir(f.Path), "/")
		host := map[string]string{"checkpoints": answer.Folders.Checkpoints, "work": answer.Folders.Work}[root]
		folders[within] = filepath.Join(host, within)
	}
	return folders
}
