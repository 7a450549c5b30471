// Package terminal connects a person's terminal with a job: with its shell, or with one beside its processes.
package terminal

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/render"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Secret returns the secret for the terminals of a job. It follows from a file of the user, so that all terminals
// of the user have it, and nobody else's.
func Secret(a *console.Console, id train.JobID) (string, error) {
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

// Session is a terminal that is to be attached to a job.
type Session struct {
	Console *console.Console
	Yard    console.Yard
	In      *os.File
	// Waiting is called before the job runs, and what it returns once it does.
	Waiting func() (done func())
	// Exit returns how the command ends after the job has ended.
	Exit func(train.Job) error
}

// poll is the time between two looks at a job.
const poll = 300 * time.Millisecond

// asking bounds one question to an executor, ending the wait for the end of a job whose program has ended.
const (
	asking = 10 * time.Second
	ending = 30 * time.Second
)

// Attach attaches the terminal to a job: once it runs, and again after the connection was lost. It returns as the
// program ended, or ErrDetached.
func (s Session) Attach(ctx context.Context, r rpc.TerminalRequest) error {
	r.Term = os.Getenv("TERM")
	done := s.Waiting()
	job, node, err := awaitRunning(ctx, s.Yard, r.Job)
	done()
	if err != nil || job.State.Terminal() {
		return errors.Join(err, s.Exit(job))
	}
	t, err := openTerminal(ctx, s.In, render.Raw(s.Console.Stdout))
	if err != nil {
		return fmt.Errorf("make the terminal raw: %w", err)
	}
	defer t.Close()
	return s.hold(ctx, t, job, node, r)
}

// hold keeps the terminal attached to a job that runs.
func (s Session) hold(ctx context.Context, t *terminal, job train.Job, node train.NodeID, r rpc.TerminalRequest) error {
	for first := true; ; first = false {
		r.Size = t.size()
		status, err := s.dial(ctx, t, node, r)
		if over, err := s.end(ctx, job, status, err, first); over {
			return err
		}
		if first {
			_, _ = io.WriteString(s.Console.Stderr, "\r\nthe connection is lost; attaching again, Ctrl-] gives up\r\n")
		}
		if !t.pause(ctx, poll) {
			return ErrDetached
		}
		if now, err := s.Yard.Find(ctx, string(r.Job), exit.Failed); err == nil && now.State.Terminal() {
			return s.Exit(now)
		}
	}
}

// end decides what the end of a session means: over is false if the connection was lost, and the terminal has to
// be attached again.
func (s Session) end(ctx context.Context, job train.Job, status int, err error, first bool) (over bool, end error) {
	cut := errors.Is(err, bus.ErrCut) || errors.Is(err, bus.ErrAway)
	switch {
	case ctx.Err() != nil || errors.Is(err, ErrDetached):
		return true, ErrDetached
	case err == nil && job.Spec.Shell == nil:
		return true, exitWith(status)
	case err == nil || errors.Is(err, io.EOF):
		ctx, cancel := context.WithTimeout(ctx, ending)
		defer cancel()
		last := job
		err := s.Yard.Follow(ctx, []train.JobID{job.ID}, func(j train.Job) bool {
			last = j
			return !j.State.Terminal()
		})
		if err != nil {
			return true, err
		}
		return last.State.Terminal(), s.Exit(last)
	case first && !cut:
		return true, exit.Errorf(exit.Failed, "", "%v", err)
	}
	return false, nil
}

// dial opens a pipe to the job, says so, and connects the terminal with the pipe.
func (s Session) dial(ctx context.Context, t *terminal, node train.NodeID, r rpc.TerminalRequest) (int, error) {
	dialing, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	p, err := s.Yard.Terminal(dialing, node, r)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	fmt.Fprintf(s.Console.Stderr, "attached to job %s on node %s; Ctrl-] detaches\r\n", r.Job, node)
	return t.session(ctx, p)
}

// awaitRunning waits until the job runs or has ended, and returns the node to ask.
func awaitRunning(ctx context.Context, y console.Yard, id train.JobID) (train.Job, train.NodeID, error) {
	for range tick.Every(ctx, poll) {
		standing, err := y.Standing(ctx, id)
		switch {
		case err != nil || standing.Job.State.Terminal():
			return standing.Job, "", err
		case standing.Pods:
			return standing.Job, "", exit.Errorf(exit.Failed, kubectl(id, standing.Namespace), "job %s runs as a pod, to which Switchyard attaches no terminal", id)
		case standing.Terminal != "":
			return standing.Job, standing.Terminal, nil
		}
	}
	return train.Job{}, "", ErrDetached
}

// kubectl is the command that opens a shell in a pod of a job.
func kubectl(id train.JobID, namespace string) string {
	in := ""
	if namespace != "" {
		in = " -n " + namespace
	}
	return fmt.Sprintf("kubectl%s exec -it $(kubectl%s get pods -l switchyard.dev/job=%s -o name | head -n 1) -- sh", in, in, strings.ToLower(string(id)))
}

func exitWith(status int) error {
	if status == 0 {
		return nil
	}
	return &exit.Error{Code: status}
}
