package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// demoServices is a `switchyard up` in a folder of its own. server is the program that runs it.
type demoServices struct{ server, dir, policy string }

// contextPath is the file in which the services write down their addresses, logPath their output.
func (s demoServices) contextPath() string { return filepath.Join(s.dir, "context.json") }
func (s demoServices) logPath() string     { return filepath.Join(s.dir, "services.log") }

// during runs the services, calls play with the URL of their bus, which must answer within patience, and stops them.
// The context of play ends with them.
func (s demoServices) during(ctx context.Context, patience time.Duration, play func(ctx context.Context, url string) error) error {
	beside, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	services, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	running := pool.New().WithErrors()
	running.Go(func() error {
		defer cancel(errors.New("the services ended early"))
		return s.run(services)
	})
	starting, cancelStart := context.WithTimeout(beside, patience)
	url, err := s.await(starting)
	cancelStart()
	if err == nil {
		err = play(beside, url)
	}
	stop()
	return errors.Join(err, running.Wait())
}

// run runs the bus and the services on free ports until ctx ends. They have two CPU slots, so that the jobs must share
// whatever the machine is. Settings in the environment, and the machine's file, are for other installations.
func (s demoServices) run(ctx context.Context) error {
	log, err := os.Create(s.logPath())
	if err != nil {
		return fmt.Errorf("make the demo's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, s.server, "up", "--config", os.DevNull, "--data-dir", s.dir, "--port", "0", "--http", "127.0.0.1:0",
		"--policy", s.policy, "--device-kind", "cpu", "--cpu-slots", "2")
	cmd.Stderr = log
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "SWITCHYARD_") })
	cmd.Env = append(cmd.Env, "SWITCHYARD_CONTEXT="+s.contextPath(), "SWITCHYARD_WEB_LISTEN=127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	// An interrupt from the terminal must reach the demo alone, which stops the services; if it is killed, they end
	// too. The kernel sends that signal when the thread that started the process ends.
	cmd.SysProcAttr = ownGroup()
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := cmd.Run(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s up: %w", s.server, err)
	}
	return nil
}

// await returns the URL of the bus once the services have written it down.
func (s demoServices) await(ctx context.Context) (string, error) {
	for range tick.Every(ctx, 20*time.Millisecond) {
		if c, err := installation.ReadContext(s.contextPath()); err == nil {
			return c.NATS, nil
		}
	}
	return "", fmt.Errorf("await the services: %w", context.Cause(ctx))
}
