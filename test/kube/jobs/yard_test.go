// Package jobs holds tests of jobs on a real Kubernetes: kubelet, containers that train, and the services as separate
// processes. The test plays the planner, so that it decides when a job moves.
package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/kube/lab"
)

// image is the Go trainer's image.
const image = "localhost/switchyard/trainer:test"

// cluster has a real node; binaries is the folder of the programs under test. Both are empty without a development
// cluster.
var (
	cluster  *lab.Cluster
	binaries string
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m, prepare)) }

func prepare(c *lab.Cluster, dir string) error {
	cluster, binaries = c, dir
	ctx := context.Background()
	for name, pkg := range map[string]string{
		"switchyard": "cmd/switchyard", "switchyard-server": "cmd/switchyard-server", "switchyard-supervisor": "cmd/switchyard-supervisor", "admission": "services/admission/cmd/admission", "executor": "services/executor/cmd/executor",
		"nodeagent": "services/nodeagent/cmd/nodeagent", "planner": "services/planner/cmd/planner",
		"profiler": "services/profiler/cmd/profiler", "web": "services/web/cmd/web",
	} {
		if err := lab.Build(ctx, filepath.Join(dir, name), "../../../"+pkg); err != nil {
			return err
		}
	}
	return c.Image(ctx, image, filepath.Join(dir, "trainer"), "../../../examples/gotrainer")
}

// yard is a Switchyard beside the cluster, with its own namespace and data folder.
type yard struct {
	t         testing.TB
	ctx       context.Context //nolint:containedctx // the length of one test
	dir       string
	cluster   *lab.Cluster
	port      int
	namespace string
	flags     []string
	agent     []string // says which GPUs the node has
	web       []string
	extender  string // where web answers schedulers
	procs     map[string]*exec.Cmd
	bus       *bus.Bus
	attempts  *bus.KV[train.Attempt]
	jobs      *bus.KV[train.Job]
	plans     uint64
	lastPlan  uint64
}

func newYard(t testing.TB, executorFlags ...string) *yard {
	t.Helper()
	return newYardOffering(t, nil, executorFlags...)
}

// newYardOffering has an agent with more flags.
func newYardOffering(t testing.TB, agentFlags []string, executorFlags ...string) *yard {
	t.Helper()
	if cluster == nil {
		t.Skip("DEVCLUSTER names no program that starts a cluster (make e2e-kube does)")
	}
	y := newYardOn(t, cluster, executorFlags...)
	y.agent = append(y.agent, agentFlags...)
	y.start("nodeagent")
	y.until("two GPUs that the kubelet accounts for", func() bool {
		node, err := y.node()
		if err != nil || len(node.Devices) != 2 {
			return false
		}
		units := y.kubectl("get", "node", "node1", "-o",
			fmt.Sprintf(`jsonpath={.status.allocatable.%s}`, strings.ReplaceAll(node.Devices[1].Resource, ".", `\.`)))
		return units == strconv.Itoa(node.Devices[1].Units)
	})
	return y
}

// newYardOn has no agent.
func newYardOn(t testing.TB, on *lab.Cluster, executorFlags ...string) *yard {
	t.Helper()
	limit := 8 * time.Minute
	if _, bench := t.(*testing.B); bench {
		limit = 45 * time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	y := &yard{
		t: t, ctx: ctx, dir: t.TempDir(), cluster: on, port: bustest.FreePort(t), flags: executorFlags, procs: map[string]*exec.Cmd{},
		agent:     []string{"--sim-gpus=2", "--sim-gpu-memory=16"},
		namespace: "jobs-" + strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(strings.Split(t.Name(), "/")[0], "Benchmark"), "Test")),
	}
	t.Cleanup(func() { cancel(); y.end() })
	y.must(y.keys().Make())
	y.kubectl("create", "namespace", y.namespace)
	y.start("bus")
	y.connect()
	y.start("admission")
	y.start("executor")
	return y
}

// end stops everything and removes its objects from the cluster.
func (y *yard) end() {
	if y.t.Failed() {
		logs, _ := filepath.Glob(filepath.Join(y.dir, "*.log"))
		for _, path := range logs {
			data, _ := os.ReadFile(path)
			y.t.Logf("%s:\n%s", filepath.Base(path), data[max(0, len(data)-5000):])
		}
		out, _ := y.cluster.Kubectl(context.Background(), "get", "pods,secrets,services,resourceclaims,events", "-n", y.namespace, "-o", "wide")
		y.t.Logf("%s", out[:min(len(out), 20_000)])
	}
	for name := range y.procs {
		y.kill(name)
	}
	if _, bench := y.t.(*testing.B); bench && y.cluster != cluster {
		return // the cluster ends with its thousands of pods
	}
	// No process is left to remove the finalizers.
	names, _ := y.cluster.Kubectl(context.Background(), "get", "pods", "-n", y.namespace, "-o", "name")
	for name := range strings.FieldsSeq(names) {
		_, _ = y.cluster.Kubectl(context.Background(), "patch", name, "-n", y.namespace, "--type=merge", "-p",
			`{"metadata":{"finalizers":null}}`)
	}
	_, _ = y.cluster.Kubectl(context.Background(), "delete", "namespace", y.namespace, "--wait=false")
}

// start runs one of the processes.
func (y *yard) start(name string) {
	y.t.Helper()
	path, args := filepath.Join(binaries, name), []string{"--nats", y.url(), "--data-dir", y.dir}
	switch name {
	case "bus":
		path, args = filepath.Join(binaries, "switchyard"), []string{"bus", "--data-dir", y.dir, "--port", strconv.Itoa(y.port)}
	case "nodeagent":
		// The kubelet's folders are in the mounts of the node, and pods reach this machine by its address on the node's
		// network.
		args = append([]string{"--mount=/proc/" + y.kubelet() + "/ns/mnt", "--", path}, append(append(args, "--kubernetes-node=node1",
			"--pod-namespace="+y.namespace, "--job-api="+y.gateway()+":0"), y.agent...)...)
		path = "nsenter"
	case "web":
		args = append(args, y.web...)
	case "executor":
		args = append(append(args, "--backend=kubernetes", "--kubeconfig="+y.cluster.Kubeconfig(), "--jobs-namespace="+y.namespace,
			"--pod-snapshots-root="+y.snapshots(), "--pod-image-pull-policy=Never", "--kill-after=2s"), y.flags...)
	}
	log, err := os.OpenFile(filepath.Join(y.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	y.must(err)
	defer log.Close()
	words := settings.Words(args...)
	cmd := exec.Command(path, words.Flags...)
	cmd.Env = append(os.Environ(), words.Environ...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	y.must(cmd.Start())
	y.procs[name] = cmd
}

func (y *yard) kill(name string) { y.signal(name, syscall.SIGKILL) }

// signal ends a process and waits for it.
func (y *yard) signal(name string, s syscall.Signal) {
	cmd := y.procs[name]
	delete(y.procs, name)
	_ = syscall.Kill(-cmd.Process.Pid, s)
	_ = cmd.Wait()
}

func (y *yard) keys() identity.Keys { return identity.KeysOf(y.dir) }

func (y *yard) url() string       { return "nats://127.0.0.1:" + strconv.Itoa(y.port) }
func (y *yard) snapshots() string { return filepath.Join(y.dir, "snapshots") }

// kubelet returns the process id of the cluster's kubelet.
func (y *yard) kubelet() string {
	y.t.Helper()
	var process struct {
		PID int `json:"pid"`
	}
	data, err := os.ReadFile(filepath.Join(y.cluster.Dir(), "run", "kubelet.json"))
	y.must(err)
	y.must(json.Unmarshal(data, &process))
	return strconv.Itoa(process.PID)
}

// gateway returns the address of this machine on the node's network.
func (y *yard) gateway() string {
	y.t.Helper()
	_, machine, err := y.cluster.Addresses()
	y.must(err)
	return machine
}

// kubectl runs kubectl on the cluster.
func (y *yard) kubectl(args ...string) string {
	y.t.Helper()
	out, err := y.cluster.Kubectl(y.ctx, args...)
	y.must(err)
	return out
}

// apply applies a manifest.
func (y *yard) apply(manifest string) {
	y.t.Helper()
	_, err := y.cluster.Feed(y.ctx, manifest, "apply", "-n", y.namespace, "-f", "-")
	y.must(err)
}

// devcluster runs a devcluster command.
func (y *yard) devcluster(args ...string) {
	y.t.Helper()
	_, err := y.cluster.Run(y.ctx, args...)
	y.must(err)
}

func (y *yard) must(err error) {
	y.t.Helper()
	if err != nil {
		y.t.Fatal(err)
	}
}

func (y *yard) connect() {
	y.t.Helper()
	b, err := bus.Connect(y.ctx, bus.Config{URL: y.url(), Keys: string(y.keys()), Name: "cli"})
	y.must(err)
	y.t.Cleanup(b.Close)
	y.must(b.Ensure(y.ctx))
	y.bus = b
	y.attempts, err = bus.OpenKV(y.ctx, b, contract.Attempts)
	y.must(err)
	y.jobs, err = bus.OpenKV(y.ctx, b, contract.Jobs)
	y.must(err)
}

func (y *yard) node() (train.Node, error) {
	kv, err := bus.OpenKV(y.ctx, y.bus, contract.Nodes)
	if err != nil {
		return train.Node{}, err
	}
	entry, err := kv.Get(y.ctx, "node1")
	return entry.Value, err
}

// until waits for a condition.
func (y *yard) until(what string, holds func() bool) {
	y.t.Helper()
	if lab.Await(y.ctx, holds) {
		return
	}
	entries, _ := y.jobs.List(context.Background())
	for _, e := range entries {
		y.t.Logf("job %s: %s %s attempt %d epochs %d: %s", e.Key, e.Value.State, e.Value.Reason, e.Value.Attempt,
			e.Value.EpochsDone, e.Value.Message)
	}
	y.t.Fatalf("%s: not seen in time", what)
}

// job waits until the register's record of a job fits, and fails if the job ends before.
func (y *yard) job(id train.JobID, what string, fits func(train.Job) bool) train.Job {
	y.t.Helper()
	var job train.Job
	y.until(fmt.Sprintf("job %s: %s", id, what), func() bool {
		e, err := y.jobs.Get(y.ctx, string(id))
		job = e.Value
		if err == nil && !fits(job) && job.State.Terminal() {
			y.t.Fatalf("job %s is %s, want %s: %s: %s", id, job.State, what, job.Reason, job.Message)
		}
		return err == nil && fits(job)
	})
	return job
}

// state waits until a job is in a state.
func (y *yard) state(id train.JobID, state train.State) train.Job {
	y.t.Helper()
	return y.job(id, string(state), func(j train.Job) bool { return j.State == state })
}

// attempt waits until the record of a job's attempt fits.
func (y *yard) attempt(id train.JobID, what string, fits func(train.Attempt) bool) train.Attempt {
	y.t.Helper()
	var a train.Attempt
	y.until(fmt.Sprintf("attempt of %s: %s", id, what), func() bool {
		e, err := y.attempts.Get(y.ctx, string(id))
		a = e.Value
		return err == nil && fits(a)
	})
	return a
}

func (y *yard) running(id train.JobID, number int) train.Attempt {
	y.t.Helper()
	return y.attempt(id, fmt.Sprintf("number %d runs", number), func(a train.Attempt) bool { return a.Number == number && a.Phase == train.PhaseRunning })
}

// submit publishes a job of the trainer and waits until it is admitted. Epochs take about a tenth of a second, times
// slow.
func (y *yard) submit(id train.JobID, epochs, slow int, change func(*train.Spec)) {
	y.t.Helper()
	spec := train.Spec{
		Name: string(id), Image: image, Command: []string{"/trainer", "-hidden", "64"}, BatchSize: 32, TrainingSetSize: 4000 * slow, MaxEpochs: epochs,
		MaxDevices: 2, Launch: train.LaunchPerDevice, Env: map[string]string{"TRAIN_LEDGER": "/snapshots/ledger"},
	}
	if change != nil {
		change(&spec)
	}
	y.must(y.bus.Publish(y.ctx, event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})))
	job := y.job(id, "admitted", func(j train.Job) bool { return j.State != train.StateSubmitted && j.State != train.StateNone })
	if job.State == train.StateRejected {
		y.t.Fatalf("job %s is rejected: %s", id, job.Message)
	}
}

// cancel ends a job.
func (y *yard) cancel(id train.JobID) {
	y.t.Helper()
	y.must(y.bus.Publish(y.ctx, event.OnceFact(id, event.FactCancelRequested, "cancel", event.CancelRequested{})))
	y.state(id, train.StateCancelled)
}

// describe returns the output of switchyard describe for a job.
func (y *yard) describe(id train.JobID) string {
	y.t.Helper()
	return y.switchyard("describe", string(id))
}

// switchyard returns the output of a command.
func (y *yard) switchyard(args ...string) string {
	y.t.Helper()
	out, err := exec.CommandContext(y.ctx, filepath.Join(binaries, "switchyard"), append([]string{"--nats", y.url(), "--keys", string(y.keys())}, args...)...).CombinedOutput()
	if err != nil {
		y.t.Fatalf("switchyard %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// on allocates devices of the node to a job.
func on(id train.JobID, devices ...train.DeviceID) train.Allocation {
	return train.Allocation{Job: id, Node: "node1", Devices: devices}
}

// plan publishes the next plan.
func (y *yard) plan(allocations ...train.Allocation) {
	y.t.Helper()
	y.plans++
	sequence, err := y.bus.PublishAfter(y.ctx, event.Fact{
		Subject: event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}, Key: fmt.Sprintf("plan/%d", y.plans), Source: "planner",
		Body: event.PlanDecided{Plan: train.Plan{Generation: y.plans, Allocations: allocations}},
	}, y.lastPlan)
	y.must(err)
	y.lastPlan = sequence
}

// nothingLeft waits until the cluster holds nothing of any job.
func (y *yard) nothingLeft() {
	y.t.Helper()
	y.until("nothing is left of the jobs", func() bool {
		out, err := y.cluster.Kubectl(y.ctx, "get", "pods,secrets,services,resourceclaims", "-n", y.namespace, "-o", "name")
		return err == nil && out == "secret/switchyard-executor-key"
	})
}

// log reads the log of a job from the node's agent.
func (y *yard) log(id train.JobID) string {
	y.t.Helper()
	chunk, err := bus.Ask[rpc.LogRequest, rpc.LogChunk](y.ctx, y.bus, rpc.LogSubject("node1"), rpc.LogRequest{Job: id})
	if err != nil && !errors.Is(err, bus.ErrAway) {
		y.t.Fatal(err)
	}
	return string(chunk.Data)
}
