package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/terminal"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

func shellCommand(a *console.Console) *cobra.Command {
	var f submitFlags
	shell := train.ShellSpec{}
	cmd := &cobra.Command{
		Use:   "shell [flags] [-- COMMAND ARG..]",
		Short: "Run a shell as a job, on this terminal",
		Long: `Runs a shell, or another command, as a job: it waits for devices as other jobs do, runs on its node in the folder and with the PATH of the caller,
and this terminal is its terminal. Ctrl-C goes to the shell. Ctrl-] detaches. The job then ends, as it does when the terminal is closed; with --keep
it goes on, and ` + "`switchyard attach JOB`" + ` comes back to it. A restart of the scheduler is bridged. Only the user who submitted it may attach.

Exit codes: that of the shell; 100 if the job failed otherwise, 103 if it was cancelled.`,
		Example: `  switchyard shell --devices 1 --time-limit 1h
  switchyard shell --keep --idle 30m -- ipython`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := terminal.Need(a, "shell")
			if err != nil {
				return err
			}
			spec := train.Spec{Command: args, Shell: &shell}
			if err := f.apply(cmd.Flags(), &spec); err != nil {
				return err
			}
			if len(args) == 0 {
				spec.Name, spec.Command = cmp.Or(spec.Name, "shell"), usualShell(spec)
			}
			return runShell(cmd, a, &f, spec, in)
		},
	}
	f.declare(cmd.Flags())
	cmd.Flags().BoolVar(&shell.Keep, "keep", false, "let the job go on while no terminal is attached")
	cmd.Flags().TextVar(&shell.Idle, "idle", unit.Duration(0), "end the job after this time without a key pressed, e.g. 30m (default: never)")
	return cmd
}

// usualShell returns the shell of the user; an image may have no other than sh.
func usualShell(spec train.Spec) []string {
	if spec.Image != "" {
		return []string{"sh"}
	}
	return []string{cmp.Or(os.Getenv("SHELL"), "sh")}
}

// runShell submits an interactive job and attaches the terminal to it.
func runShell(cmd *cobra.Command, a *console.Console, f *submitFlags, spec train.Spec, in *os.File) error {
	if err := asTyped(&spec, os.Environ()); err != nil {
		return err
	}
	if spec.Env == nil {
		spec.Env = map[string]string{}
	}
	spec.Env["TERM"] = cmp.Or(spec.Env["TERM"], os.Getenv("TERM"), "dumb")
	never := 0
	spec.MaxRestarts, spec.Retries = cmp.Or(spec.MaxRestarts, &never), cmp.Or(spec.Retries, &never)
	id, err := f.jobID(spec)
	if err != nil {
		return err
	}
	secret, err := terminal.Secret(a, id)
	if err != nil {
		return err
	}
	spec.Shell.Key = train.Hash(secret)
	if f.printEvent {
		return printEvent(a, spec, id)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGHUP)
	defer stop()
	y, done, err := connectOrStart(ctx, a)
	if err != nil {
		return err
	}
	defer done()
	if err := f.travel(ctx, a, y, cmd.Flags(), &spec); err != nil {
		return err
	}
	if _, err := Submit(ctx, y, spec, id); err != nil && ctx.Err() == nil {
		return err
	}
	fmt.Fprintf(a.Stderr, "job %s\n", id)
	left := session(ctx, a, y, in, id).Attach(ctx, rpc.TerminalRequest{Job: id, Secret: secret})
	switch {
	case ctx.Err() == nil && !errors.Is(left, terminal.ErrDetached):
		return left
	case spec.Shell.Keep:
		fmt.Fprintf(a.Stderr, "\njob %s goes on\n  next  switchyard attach %s | switchyard cancel %s\n", id, id, id)
		return nil
	}
	fmt.Fprintln(a.Stderr)
	messages := *a
	messages.Stdout = a.Stderr
	return Cancel(context.WithoutCancel(ctx), &messages, y, []string{string(id)}, CancelOptions{reason: "its terminal was closed", Timeout: CancelTimeout})
}

func attachCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "attach JOB [-- COMMAND ARG..]",
		Short: "Attach this terminal to an interactive job, or open a shell beside a running one",
		Long: `Attaches this terminal to the shell of a job that ` + "`switchyard shell`" + ` has started. For any other running job it opens a shell, or runs a command,
beside the job's processes: on the machine, in the folder, with the environment and on the devices of the first one. It does not outlive the job.
Ctrl-] detaches; a shell beside a job ends then.

Exit codes: that of the shell; 1 if there is nothing to attach to.`,
		Example: `  switchyard attach shell-x4k2
  switchyard attach train -- nvidia-smi`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := terminal.Need(a, "attach")
			if err != nil {
				return err
			}
			return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error {
				ctx, stop := signal.NotifyContext(ctx, unix.SIGHUP)
				defer stop()
				job, err := y.Find(ctx, args[0], exit.Failed)
				if err != nil {
					return err
				}
				if job.State.Terminal() {
					return exit.Errorf(exit.Failed, "`switchyard logs "+string(job.ID)+"` has its output", "job %s has ended: it is %s", job.ID, job.State)
				}
				if job.Spec.Shell != nil && len(args) > 1 {
					return exit.Usagef("job %s is a shell itself: attach to it without a command", job.ID)
				}
				secret, err := terminal.Secret(a, job.ID)
				if err != nil {
					return err
				}
				err = session(ctx, a, y, in, job.ID).Attach(ctx, rpc.TerminalRequest{Job: job.ID, Secret: secret, Command: args[1:]})
				if errors.Is(err, terminal.ErrDetached) {
					fmt.Fprintf(a.Stderr, "\ndetached from job %s\n", job.ID)
					return nil
				}
				return err
			})
		},
	}
}

// session is this terminal at a job.
func session(ctx context.Context, a *console.Console, y console.Yard, in *os.File, id train.JobID) terminal.Session {
	return terminal.Session{Console: a, Yard: y, In: in, Exit: shellExit, Waiting: func() func() {
		_, done := withProgress(ctx, a, y, id)
		return done
	}}
}

// shellExit is the exit of a command whose job has ended; unless its program said so itself, it says how.
func shellExit(job train.Job) error {
	err := ownExit(job)
	var coded *exit.Error
	if errors.As(err, &coded) && (job.ExitCode == nil || *job.ExitCode == 0 || job.Reason != "ExitStatus") {
		coded.Text = endLine(job)
	}
	return err
}
