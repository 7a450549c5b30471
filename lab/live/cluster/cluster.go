// Package cluster runs the programs of Switchyard on this machine, which presents itself as several nodes with
// simulated GPUs, and plays workloads on them. Jobs are real processes.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/lab/live"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Config is what a cluster is made of.
type Config struct {
	// Bin is the folder of the programs, Dir an empty one for everything that they keep.
	Bin, Dir string
	Nodes    int
	Policy   string
	Terms    live.Terms
}

// During runs the cluster, calls play with the URL of its bus, and stops it. The context of play ends with the cluster.
func (c Config) During(ctx context.Context, play func(ctx context.Context, url string) error) error {
	beside, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	services, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	running := pool.New().WithErrors()
	start := func(name, program string, words ...string) {
		running.Go(func() error {
			err := c.run(services, name, program, words...)
			fail(fmt.Errorf("%s has ended early; its log is %s", name, c.log(name)))
			return err
		})
	}
	start("up", "switchyard-server", slices.Concat([]string{"up", "--port", "0", "--job-mounts", settings.MountsNever}, c.deciding(), node(0))...)
	url, err := c.await(beside)
	if err == nil {
		for i := 1; i < c.Nodes; i++ {
			id := string(live.NodeID(i))
			start("nodeagent-"+id, "switchyard-nodeagent", slices.Concat([]string{"--nats", url, "--machine", string(live.NodeID(0))}, node(i))...)
		}
		err = play(beside, url)
	}
	stop()
	return errors.Join(err, running.Wait())
}

// deciding are the settings of the services that there is one of.
func (c Config) deciding() []string {
	seconds := func(s float64) string { return strconv.FormatFloat(s, 'f', -1, 64) + "s" }
	return []string{
		"--policy", c.Policy, "--refit-interval", "500ms", "--plan-interval", "1s",
		"--restart-price", seconds(c.Terms.RestartSeconds), "--rescale-min-interval", seconds(c.Terms.MinRescaleSeconds),
		"--starvation-bound", seconds(c.Terms.StarvationSeconds), "--max-restarts-per-hour", strconv.Itoa(c.Terms.MaxRestartsPerHour),
	}
}

// node are the settings of a node's agent. Nobody reads its energy, so it is hardly measured.
func node(i int) []string {
	return []string{"--node", string(live.NodeID(i)), "--sim-gpus", strconv.Itoa(live.DevicesPerNode), "--meter-interval", "30s", "--perf-events", settings.PerfOff}
}

func (c Config) log(name string) string { return filepath.Join(c.Dir, name+".log") }

func (c Config) keys() identity.Keys { return identity.KeysOf(c.Dir) }

func (c Config) contextPath() string { return filepath.Join(c.Dir, "context.json") }

// run runs a program until ctx ends. Settings in the environment, and the machine's file, are for other installations.
func (c Config) run(ctx context.Context, name, program string, words ...string) error {
	log, err := os.Create(c.log(name))
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	defer func() { _ = log.Close() }()
	at := slices.Index(words, "--node")
	words = append(words, "--config", os.DevNull, "--keys", string(c.keys()), "--http", "127.0.0.1:0", "--log-level", "warn", "--data-dir", filepath.Join(c.Dir, words[at+1]))
	given := settings.Words(words...)
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin, program), given.Flags...)
	cmd.Stdout, cmd.Stderr = io.Discard, log
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "SWITCHYARD_") })
	cmd.Env = append(append(cmd.Env, given.Environ...), "SWITCHYARD_CONTEXT="+c.contextPath())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	// An interrupt from the terminal reaches this process alone, which stops the others; if it is killed, they end too.
	// The kernel sends that signal when the thread that started the process ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil && !errors.Is(err, context.Canceled) {
		text, _ := os.ReadFile(c.log(name))
		return fmt.Errorf("%s: %w: %s", program, err, text[max(0, len(text)-1000):])
	}
	return nil
}

// await returns the URL of the bus once the services have written it down.
func (c Config) await(ctx context.Context) (string, error) {
	for range tick.Every(ctx, 20*time.Millisecond) {
		if known, err := installation.ReadContext(c.contextPath()); err == nil {
			return known.NATS, nil
		}
	}
	return "", fmt.Errorf("wait for the bus: %w", context.Cause(ctx))
}
