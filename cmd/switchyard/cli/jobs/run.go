package jobs

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func runCommand(a *console.Console) *cobra.Command {
	var f submitFlags
	var detach bool
	cmd := &cobra.Command{
		Use:   "run [flags] COMMAND ARG..",
		Short: "Run a command as a job, and follow it to its end",
		Long: `Runs a command as a job in the folder of the caller, with the caller's PATH, VIRTUAL_ENV, CONDA_* and language, shows its output, and exits with
its exit code. If no scheduler answers, it starts ` + "`switchyard up`" + ` in the background first (` + "`switchyard down`" + ` stops it).

At a terminal Ctrl-C asks whether to cancel the job, and a second one leaves it running. Without a terminal, and on SIGTERM, the job is
cancelled, as with docker run and srun. It runs on if the connection to the terminal is lost.

Exit codes: that of the command, 128+N if signal N killed it; 100 if the job failed otherwise, such as by its time limit, 103 if it was cancelled, 130 after Ctrl-C, 143 after SIGTERM.`,
		Example: `  switchyard run python3 train.py --lr 0.1
  switchyard run -d --max-devices 2 --batch-size 64 torchrun train.py`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := train.Spec{Command: args}
			if err := f.apply(cmd.Flags(), &spec); err != nil {
				return exit.Usagef("%v", err)
			}
			if err := f.buildImage(cmd.Context(), a, &spec, "."); err != nil {
				return err
			}
			if err := asTyped(&spec, os.Environ()); err != nil {
				return err
			}
			if spec.Array != "" {
				return exit.Errorf(exit.Usage, "`switchyard submit --array "+spec.Array+"` submits an array", "run follows one job, and --array asks for several")
			}
			id, err := f.jobID(spec)
			switch {
			case err != nil:
				return err
			case f.printEvent:
				return printEvent(a, spec, id)
			case f.dryRun:
				return a.WithYard(cmd, func(ctx context.Context, y console.Yard) error { return dryRun(ctx, a, y, spec, id) })
			}
			return runJob(cmd, a, &f, spec, id, detach)
		},
	}
	f.declare(cmd.Flags())
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "return as soon as the job is admitted")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// runJob submits a job and follows it to its end, unless the person wants to detach.
func runJob(cmd *cobra.Command, a *console.Console, f *submitFlags, spec train.Spec, id train.JobID, detach bool) error {
	ctx, signals := cmd.Context(), make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, unix.SIGTERM)
	defer signal.Stop(signals)
	y, done, err := connectOrStart(ctx, a)
	if err != nil {
		return err
	}
	defer done()
	if err := f.bring(ctx, a, y, cmd.Flags(), &spec); err != nil {
		return err
	}
	result, err := Submit(ctx, y, spec, id)
	switch {
	case ctx.Err() != nil:
		return interrupted(context.WithoutCancel(ctx), a, y, id, signals)
	case err != nil:
		return err
	case detach:
		return printSubmission(a, result, time.Now())
	}
	words := ""
	if result.Repeat {
		words = " was submitted before, and is not run again: this is its output"
	}
	fmt.Fprintf(a.Stderr, "job %s%s\n", id, words)
	return follow(ctx, a, y, id, signals)
}

// follow shows the output of a job until it ends, and returns how it ended.
func follow(ctx context.Context, a *console.Console, y console.Yard, id train.JobID, signals <-chan os.Signal) error {
	with, done := withProgress(ctx, a, y, id)
	err := Logs(ctx, with, y, string(id), LogOptions{follow: true, raw: a.Output != "json", Tail: -1})
	done()
	if ctx.Err() != nil {
		return interrupted(context.WithoutCancel(ctx), a, y, id, signals)
	}
	if err != nil {
		return err
	}
	job, err := y.Find(ctx, string(id), exit.Failed)
	if err != nil {
		return err
	}
	return ownExit(job)
}

// ownExit makes the end of a job the exit code of this command. The output has said how it ended.
func ownExit(job train.Job) error {
	switch {
	case job.State == train.StateSucceeded:
		return nil
	case job.State == train.StateCancelled:
		return &exit.Error{Code: exit.JobCancelled}
	case job.ExitCode != nil && *job.ExitCode > 0:
		return &exit.Error{Code: *job.ExitCode}
	}
	return &exit.Error{Code: exit.JobFailed}
}

// What shells report for a command that a signal ended.
const (
	interruptedCode = 128 + int(unix.SIGINT)
	terminatedCode  = 128 + int(unix.SIGTERM)
)

// interrupted decides what becomes of the job. After Ctrl-C at a terminal it asks the person; otherwise the job ends
// with its command.
func interrupted(ctx context.Context, a *console.Console, y console.Yard, id train.JobID, signals <-chan os.Signal) error {
	code := interruptedCode
	if <-signals == unix.SIGTERM {
		code = terminatedCode
	}
	signal.Reset(os.Interrupt, unix.SIGTERM) // another one ends this command at once
	in, ok := a.Stdin.(*os.File)
	if code == interruptedCode && ok && render.IsTerminal(in) {
		fmt.Fprintf(a.Stderr, "\njob %s runs on. Cancel it? [y/N] ", id)
		answer, _ := bufio.NewReader(in).ReadString('\n')
		if !strings.HasPrefix(strings.ToLower(answer), "y") {
			fmt.Fprintf(a.Stderr, "  next  switchyard logs -f %s | switchyard cancel %s\n", id, id)
			return &exit.Error{Code: code}
		}
	}
	messages := *a
	messages.Stdout = a.Stderr // the output is the job's
	err := Cancel(ctx, &messages, y, []string{string(id)}, CancelOptions{reason: "its command was interrupted", Timeout: CancelTimeout})
	if err != nil {
		return err
	}
	return &exit.Error{Code: code}
}
