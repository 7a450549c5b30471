package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/programs"
)

func serviceNames() []string {
	return []string{"admission", "profiler", "planner", "executor", "nodeagent", "energy", "experiments", "web"}
}

var binaries string

func TestMain(m *testing.M) {
	if options := os.Getenv(busVariable); options != "" {
		os.Exit(serveBus(options))
	}
	bustest.Parallel(2 * runtime.GOMAXPROCS(0))
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "switchyard-kill-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binaries = dir
		packages := programs.All()
		for _, s := range serviceNames() {
			packages = append(packages, "services/"+s+"/cmd/"+s)
		}
		if err := programs.Build(dir, packages...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// cluster is a whole Switchyard of real processes over one data folder.
type cluster struct {
	t *testing.T
	// dir is where jobs and tests meet. data, the data folder, lies in it, and jobs do not see it.
	dir    string
	data   string
	port   int
	ledger string
	procs  map[string]*exec.Cmd
	// flags are added for `switchyard up` and for the node agent, common for every service, env for all.
	flags []string
	// node is set if the node agent has an account of its own.
	node   string
	common []string
	env    []string
	// http has the ports of services that have one of their own; urls are those of the bus, if it is a cluster.
	http map[string]int
	urls string
	// servers are the servers of that cluster, by name, as variables of this program.
	servers map[string]string
	bus     *bus.Bus
	ctx     context.Context //nolint:containedctx // the length of one test
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterIn(t, t.TempDir(), 5*time.Minute)
}

// newClusterIn makes a cluster for a test that takes at most d, with its files in a folder.
func newClusterIn(t *testing.T, dir string, d time.Duration) *cluster {
	t.Helper()
	programs.Look()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	c := &cluster{t: t, dir: dir, data: filepath.Join(dir, "data"), port: bustest.FreePort(t), procs: map[string]*exec.Cmd{}, ctx: ctx}
	c.ledger = filepath.Join(c.dir, "ledger.jsonl")
	if err := c.keys().Make(); err != nil { // services may start before the bus
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		for name := range c.procs {
			c.kill(name, syscall.SIGKILL)
		}
		c.killRest()
		c.mayDoAll()
		if t.Failed() {
			c.dump()
		}
	})
	return c
}

// killRest ends the jobs and their supervisors. A supervisor writes until it is gone, so all must be gone before the
// folder is removed.
func (c *cluster) killRest() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	patience := time.After(time.Minute)
	for {
		left := processes(c.owns)
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-patience:
			c.t.Errorf("processes %v cannot be killed", left)
			return
		case <-tick.C:
		}
	}
}

// mayDoAll fails if the bus has refused what a service asked for: its permissions lack something.
func (c *cluster) mayDoAll() {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
	for _, path := range logs {
		data, _ := os.ReadFile(path)
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, "permissions violation") {
				c.t.Errorf("%s: %s", filepath.Base(path), line)
			}
		}
	}
}

func (c *cluster) dump() {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
	for _, path := range logs {
		data, _ := os.ReadFile(path)
		c.t.Logf("%s:\n%s", filepath.Base(path), data[max(0, len(data)-4000):])
	}
}

// keys is the folder with the keys of all roles.
func (c *cluster) keys() identity.Keys { return identity.KeysOf(c.data) }

// raw connects as a role, with a client that knows nothing of Switchyard; without a role it shows no key.
func (c *cluster) raw(role string, options ...nats.Option) (*nats.Conn, error) {
	if role != "" {
		key, err := nats.NkeyOptionFromSeed(c.keys().File(role))
		if err != nil {
			return nil, err
		}
		options = append(options, key)
		if role != identity.User {
			options = append(options, nats.CustomInboxPrefix(identity.InboxPrefix(role)))
		}
	}
	return nats.Connect(c.url(), options...)
}

func (c *cluster) url() string { return cmp.Or(c.urls, "nats://127.0.0.1:"+strconv.Itoa(c.port)) }

// start runs one of the processes: bus, up, or a service; service@x is a replica with its own data folder.
func (c *cluster) start(name string) {
	c.t.Helper()
	slots := []string{"--device-kind", "cpu", "--cpu-slots", "2"}
	program, replica, _ := strings.Cut(name, "@")
	path, args := filepath.Join(binaries, program), []string{"--nats", c.url(), "--keys", string(c.keys()), "--data-dir", c.data + replica}
	if server := c.servers[name]; server != "" {
		c.run(name, os.Args[0], nil, []string{server})
		return
	}
	switch name {
	case "bus":
		path, args = filepath.Join(binaries, "switchyard"), []string{"bus", "--data-dir", c.data, "--port", strconv.Itoa(c.port)}
	case "up":
		path, args = filepath.Join(binaries, "switchyard"), append([]string{"up", "--data-dir", c.data, "--port", strconv.Itoa(c.port)},
			append(slots, c.flags...)...)
	case "nodeagent":
		if c.node != "" {
			args = []string{"--nats", c.url(), "--keys", filepath.Join(string(c.keys()), "nodes", c.node), "--data-dir", c.data, "--node", c.node}
		}
		args = append(append(args, slots...), c.flags...)
	case "executor":
		if c.node != "" { // the first program that opens the data folder writes the name of the node into it
			args = append(args, "--node", c.node)
		}
	}
	if name != "bus" {
		args = append(args, c.common...)
	}
	if port := c.http[name]; port != 0 {
		args = append(args, "--http", "127.0.0.1:"+strconv.Itoa(port))
	}
	words := settings.Words(args...)
	c.run(name, path, words.Flags, words.Environ)
}

// run starts a program in the background, with its output in a file.
func (c *cluster) run(name, path string, args, environ []string) {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(c.environ(), environ...)
	// Its own process group, as under a service manager: a kill hits only this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.procs[name] = cmd
}

func (c *cluster) environ() []string {
	return append(append(os.Environ(), "SWITCHYARD_CONTEXT="+filepath.Join(c.dir, "context.json"), "SWITCHYARD_KEYS="+string(c.keys())), c.env...)
}

// command runs the command line and returns its exit code and both outputs.
func (c *cluster) command(args ...string) (int, string) {
	c.t.Helper()
	return c.program(filepath.Join(binaries, "switchyard"), args...)
}

func (c *cluster) program(path string, args ...string) (int, string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.ctx, path, args...)
	cmd.Env = append(c.environ(), "SWITCHYARD_NATS="+c.url())
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatalf("%s %q: %v", path, args, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func (c *cluster) kill(name string, signal syscall.Signal) {
	cmd := c.procs[name]
	delete(c.procs, name)
	_ = cmd.Process.Signal(signal)
	_ = cmd.Wait()
}

func (c *cluster) connect() {
	c.t.Helper()
	b, err := bus.Connect(c.ctx, bus.Config{URL: c.url(), Keys: string(c.keys()), Name: "cli", Replicas: cmp.Or(len(c.servers), 1)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(b.Close)
	c.eventually("ensure the streams", func() error { return b.Ensure(c.ctx) })
	c.bus = b
}

// eventually repeats a call until it succeeds: while a process is killed, or the machine is busy, calls fail.
func (c *cluster) eventually(what string, call func() error) {
	c.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for err := call(); err != nil; err = call() {
		select {
		case <-c.ctx.Done():
			c.t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// submit publishes a job of the Go trainer; epochs take about 0.2 s on a device. It sleeps most of that, so that other
// tests have processors.
func (c *cluster) submit(id train.JobID, epochs, devices int) {
	c.t.Helper()
	c.submitSpec(id, train.Spec{
		Command: []string{filepath.Join(binaries, "gotrainer"), "-hidden", "8", "-slow-by", "1ms"}, Env: map[string]string{"TRAIN_LEDGER": c.ledger},
		BatchSize: 32, TrainingSetSize: 6000, MaxEpochs: epochs, MaxDevices: devices,
	})
}

func (c *cluster) submitSpec(id train.JobID, spec train.Spec) {
	c.t.Helper()
	spec.Name, spec.WorkDir = string(id), c.dir
	if err := c.bus.Publish(c.ctx, event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})); err != nil {
		c.t.Fatal(err)
	}
}

// awaitNode waits until a node is known: before that admission cannot say what no node has.
func (c *cluster) awaitNode() {
	c.t.Helper()
	c.await("a node is known", func(map[train.JobID]train.Job) bool { return len(c.bucket(string(contract.Nodes))) > 0 })
}

// await waits until a condition holds for the register, and returns the jobs for which it holds.
func (c *cluster) await(what string, holds func(map[train.JobID]train.Job) bool) map[train.JobID]train.Job {
	c.t.Helper()
	var kv *bus.KV[train.Job]
	c.eventually("open the register", func() (err error) {
		kv, err = bus.OpenKV(c.ctx, c.bus, contract.Jobs)
		return err
	})
	var mu sync.Mutex
	jobs, complete := map[train.JobID]train.Job{}, false
	// Listing the whole register at each check took most of the processor time of these tests.
	var watching conc.WaitGroup
	defer watching.Wait()
	ctx, stop := context.WithCancel(c.ctx)
	defer stop()
	watching.Go(func() {
		_ = kv.Watch(ctx, func(e bus.Entry[train.Job], deleted bool) {
			mu.Lock()
			defer mu.Unlock()
			if deleted {
				delete(jobs, train.JobID(e.Key))
				return
			}
			jobs[e.Value.ID] = e.Value
		}, func() {
			mu.Lock()
			defer mu.Unlock()
			complete = true
		})
	})
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		mu.Lock()
		now, known := maps.Clone(jobs), complete
		mu.Unlock()
		if known && c.bus.Ready() == nil && holds(now) {
			return now
		}
		select {
		case <-c.ctx.Done():
			for id, j := range now {
				c.t.Logf("job %s: %s %s attempt %d epochs %d: %s", id, j.State, j.Reason, j.Attempt, j.EpochsDone, j.Message)
			}
			c.t.Fatalf("%s: not seen in time", what)
		case <-tick.C:
		}
	}
}

func (c *cluster) register() (map[train.JobID]train.Job, error) {
	kv, err := bus.OpenKV(c.ctx, c.bus, contract.Jobs)
	if err != nil {
		return nil, err
	}
	entries, err := kv.List(c.ctx)
	jobs := map[train.JobID]train.Job{}
	for _, e := range entries {
		jobs[e.Value.ID] = e.Value
	}
	return jobs, err
}

// terminals counts the terminal facts of each job in the stream.
func (c *cluster) terminals() map[string]int {
	c.t.Helper()
	last, err := c.bus.LastSequence(c.ctx, event.StreamJobs)
	if err != nil {
		c.t.Fatal(err)
	}
	counts := map[string]int{}
	ctx, stop := context.WithCancel(c.ctx)
	defer stop()
	_ = c.bus.Follow(ctx, event.StreamJobs, nil, 1, func(m bus.Message) {
		if train.State(m.Parsed.Fact).Terminal() {
			counts[m.Parsed.ID]++
		}
		if m.Sequence >= last {
			stop()
		}
	})
	return counts
}

// trainers returns the processes that belong to jobs of this cluster, whatever their parent.
func (c *cluster) trainers() []int {
	return processes(func(proc string) bool { return names(proc, "environ", "TRAIN_LEDGER="+c.ledger) })
}

// owns reports whether a process belongs to this cluster or to a job of it: it names or works in the cluster's folder.
func (c *cluster) owns(proc string) bool {
	cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
	return strings.HasPrefix(cwd, c.dir) || names(proc, "cmdline", c.dir) || names(proc, "environ", c.dir)
}

// names reports whether a file of a process contains a text.
func names(proc, file, text string) bool {
	data, err := os.ReadFile(filepath.Join(proc, file))
	return err == nil && strings.Contains(string(data), text)
}

// processes returns the processes whose folders below /proc fit.
func processes(fits func(proc string) bool) []int {
	var pids []int
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		if fits(proc) {
			pid, _ := strconv.Atoi(filepath.Base(proc))
			pids = append(pids, pid)
		}
	}
	return pids
}

// trained waits until the ledger has an epoch of a job, and returns the process that trained it. The ledger is not
// behind the trainers, as the register is while the machine is busy.
func (c *cluster) trained(job string, epoch int) (pid int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("wait for epoch %d of %s", epoch, job), func() error {
		for _, e := range readLedger(c.t, c.ledger) {
			if e.Event == "epoch" && e.Job == job && e.Epoch >= epoch {
				pid = e.PID
				return nil
			}
		}
		return errNotTrained
	})
	return pid
}

var errNotTrained = errors.New("it is not in the ledger")
