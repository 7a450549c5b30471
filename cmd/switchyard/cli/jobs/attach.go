package jobs

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/tick"
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
			in, err := needTerminal(a, "shell")
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
	secret, err := attachSecret(a, id)
	if err != nil {
		return err
	}
	spec.Shell.Key = train.ShellKey(secret)
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
	b, err := a.Connect(ctx) // a terminal is a pipe on the bus
	if err != nil {
		return err
	}
	defer b.Close()
	if err := f.travel(ctx, a, y, cmd.Flags(), &spec); err != nil {
		return err
	}
	if _, err := Submit(ctx, y, spec, id); err != nil && ctx.Err() == nil {
		return err
	}
	fmt.Fprintf(a.Stderr, "job %s\n", id)
	left := attach(ctx, a, b, in, train.TerminalRequest{Job: id, Secret: secret})
	switch {
	case ctx.Err() == nil && !errors.Is(left, errDetached):
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
			in, err := needTerminal(a, "attach")
			if err != nil {
				return err
			}
			return a.WithBus(cmd, func(ctx context.Context, b *bus.Bus) error {
				ctx, stop := signal.NotifyContext(ctx, unix.SIGHUP)
				defer stop()
				job, err := console.FindJob(ctx, b, args[0], exit.Failed)
				if err != nil {
					return err
				}
				if job.State.Terminal() {
					return exit.Errorf(exit.Failed, "`switchyard logs "+string(job.ID)+"` has its output", "job %s has ended: it is %s", job.ID, job.State)
				}
				if job.Spec.Shell != nil && len(args) > 1 {
					return exit.Usagef("job %s is a shell itself: attach to it without a command", job.ID)
				}
				secret, err := attachSecret(a, job.ID)
				if err != nil {
					return err
				}
				err = attach(ctx, a, b, in, train.TerminalRequest{Job: job.ID, Secret: secret, Command: args[1:]})
				if errors.Is(err, errDetached) {
					fmt.Fprintf(a.Stderr, "\ndetached from job %s\n", job.ID)
					return nil
				}
				return err
			})
		},
	}
}

// attachSecret returns the secret for the terminals of a job. It follows from a file of the user, so that all terminals
// of the user have it, and nobody else's.
func attachSecret(a *console.Console, id train.JobID) (string, error) {
	path := filepath.Join(filepath.Dir(a.ContextPath()), "attach.key")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("keep the key of terminals: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		fresh := make([]byte, sha256.Size)
		_, _ = rand.Read(fresh)
		_, err = file.WriteString(hex.EncodeToString(fresh))
		err = errors.Join(err, file.Close())
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("keep the key of terminals: %w", err)
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the key of terminals: %w", err)
	}
	sum := hmac.New(sha256.New, key)
	_, _ = io.WriteString(sum, string(id))
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// attach attaches the terminal to a job: once it runs, and again after the connection was lost. It returns as the
// program ended, or errDetached.
func attach(ctx context.Context, a *console.Console, b *bus.Bus, in *os.File, r train.TerminalRequest) error {
	r.Term = os.Getenv("TERM")
	_, done := withProgress(ctx, a, console.OnBus(b, time.Now), r.Job)
	job, node, err := awaitRunning(ctx, b, r.Job)
	done()
	if err != nil || job.State.Terminal() {
		return errors.Join(err, shellExit(job))
	}
	fmt.Fprintf(a.Stderr, "attached to job %s on node %s; Ctrl-] detaches\n", r.Job, node)
	t, err := openTerminal(ctx, in, a.Stdout)
	if err != nil {
		return fmt.Errorf("make the terminal raw: %w", err)
	}
	defer t.Close()
	return t.hold(ctx, a, b, job, node, r)
}

// hold keeps the terminal attached to a job that runs.
func (t *terminal) hold(ctx context.Context, a *console.Console, b *bus.Bus, job train.Job, node train.NodeID, r train.TerminalRequest) error {
	for first := true; ; first = false {
		r.Size = t.size()
		status, err := t.dial(ctx, b, node, r)
		if over, err := sessionEnd(ctx, b, job, status, err, first); over {
			return err
		}
		if first {
			_, _ = io.WriteString(a.Stderr, "\r\nthe connection is lost; attaching again, Ctrl-] gives up\r\n")
		}
		if !t.pause(ctx, LogPoll) {
			return errDetached
		}
		if now, found, err := console.GetIfThere(ctx, b, contract.Jobs, string(r.Job)); err == nil && found && now.State.Terminal() {
			return shellExit(now)
		}
	}
}

// sessionEnd decides what the end of a session means: over is false if the connection was lost, and the terminal has to
// be attached again.
func sessionEnd(ctx context.Context, b *bus.Bus, job train.Job, status int, err error, first bool) (over bool, end error) {
	cut := errors.Is(err, bus.ErrCut) || errors.Is(err, bus.ErrAway)
	switch {
	case ctx.Err() != nil || errors.Is(err, errDetached):
		return true, errDetached
	case err == nil && job.Spec.Shell == nil:
		return true, exitWith(status)
	case err == nil || errors.Is(err, io.EOF):
		last, err := watchToEnd(ctx, console.OnBus(b, time.Now), []train.Job{job}, CancelTimeout, func(train.Job) {})
		if err != nil {
			return true, err
		}
		return last[0].State.Terminal(), shellExit(last[0])
	case first && !cut:
		return true, exit.Errorf(exit.Failed, "", "%v", err)
	}
	return false, nil
}

// dial opens a pipe to the job and connects the terminal with it.
func (t *terminal) dial(ctx context.Context, b *bus.Bus, node train.NodeID, r train.TerminalRequest) (int, error) {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	p, err := bus.Dial(asking, b, train.TerminalSubject(node), r)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	return t.session(ctx, p)
}

// awaitRunning waits until the job runs or has ended, and returns the node to ask.
func awaitRunning(ctx context.Context, b *bus.Bus, id train.JobID) (train.Job, train.NodeID, error) {
	for range tick.Every(ctx, LogPoll) {
		job, found, err := console.GetIfThere(ctx, b, contract.Jobs, string(id))
		if err != nil {
			return job, "", err
		}
		if !found || job.State.Terminal() {
			return job, "", nil
		}
		attempt, found, err := console.GetIfThere(ctx, b, contract.Attempts, string(id))
		switch {
		case err != nil:
			return job, "", err
		case !found || attempt.Phase != train.PhaseRunning:
		case attempt.Backend == train.BackendKubernetes:
			return job, "", exit.Errorf(exit.Failed, fmt.Sprintf("kubectl exec -it $(kubectl get pods -l switchyard.dev/job=%s -o name | head -n 1) -- sh", strings.ToLower(string(id))), "job %s runs as a pod, to which Switchyard attaches no terminal", id)
		default:
			return job, cmp.Or(attempt.Machine, attempt.Home()), nil
		}
	}
	return train.Job{}, "", errDetached
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

func exitWith(status int) error {
	if status == 0 {
		return nil
	}
	return &exit.Error{Code: status}
}
