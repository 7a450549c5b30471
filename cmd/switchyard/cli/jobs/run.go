package jobs

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/render"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func runCommand(a *console.Console) *cobra.Command {
	var f submitFlags
	var detach bool
	cmd := &cobra.Command{
		Use:   "run [flags] COMMAND ARG..",
		Short: "Run a command as a job, and follow it to its end",
		Long: `Runs a command as a job in the folder of the caller, with the caller's PATH, VIRTUAL_ENV, CONDA_* and language, shows its output, and exits with
its exit code. If no scheduler answers, it starts ` + "`switchyard up`" + ` in the background first. After Ctrl-C it asks whether to cancel the job.

Exit codes: that of the command; 100 if the job failed otherwise, 103 if it was cancelled, 130 after Ctrl-C.`,
		Example: `  switchyard run python3 train.py --lr 0.1
  switchyard run -d --max-devices 2 --batch-size 64 torchrun train.py`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := train.Spec{Command: args}
			if err := f.apply(cmd.Flags(), &spec); err != nil {
				return exit.Usagef("%v", err)
			}
			if err := asTyped(&spec, os.Environ()); err != nil {
				return err
			}
			id, err := f.jobID(spec)
			if err != nil {
				return err
			}
			if f.printEvent {
				return printEvent(a, spec, id)
			}
			b, err := connectOrStart(cmd.Context(), a)
			if err != nil {
				return err
			}
			defer b.Close()
			result, err := Submit(cmd.Context(), b, spec, id)
			if err != nil {
				return err
			}
			if detach {
				return printSubmission(a, result, time.Now())
			}
			fmt.Fprintf(a.Stderr, "job %s\n", id)
			return follow(cmd.Context(), a, b, id)
		},
	}
	f.declare(cmd.Flags())
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "return as soon as the job is admitted")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// follow shows the output of a job until it ends, and returns how it ended.
func follow(ctx context.Context, a *console.Console, b *bus.Bus, id train.JobID) error {
	err := Logs(ctx, a, b, string(id), LogOptions{follow: true, raw: a.Output != "json", Tail: -1})
	if ctx.Err() != nil {
		return interrupted(context.WithoutCancel(ctx), a, b, id)
	}
	if err != nil {
		return err
	}
	job, _, err := console.GetIfThere(ctx, b, contract.Jobs, string(id))
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

// interruptedCode is what shells report for a command that Ctrl-C ended.
const interruptedCode = 128 + int(unix.SIGINT)

// interrupted asks the person at the terminal what becomes of the job. Without a terminal the job goes on.
func interrupted(ctx context.Context, a *console.Console, b *bus.Bus, id train.JobID) error {
	signal.Reset(os.Interrupt) // another Ctrl-C ends this command at once
	if in, ok := a.Stdin.(*os.File); ok && render.IsTerminal(in) {
		fmt.Fprintf(a.Stderr, "\njob %s goes on. Cancel it? [y/N] ", id)
		answer, _ := bufio.NewReader(a.Stdin).ReadString('\n')
		if len(answer) > 0 && (answer[0] == 'y' || answer[0] == 'Y') {
			if err := Cancel(ctx, a, b, []string{string(id)}, CancelOptions{reason: "interrupted at the terminal", Timeout: CancelTimeout}); err != nil {
				return err
			}
			return &exit.Error{Code: interruptedCode}
		}
	}
	fmt.Fprintf(a.Stderr, "job %s goes on\n  next  switchyard logs -f %s | switchyard cancel %s\n", id, id, id)
	return &exit.Error{Code: interruptedCode}
}
