package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/test/kube/lab"
)

// agent is a node agent in the node's own mounts and network, as in its DaemonSet's pod.
type agent struct {
	c     *cluster
	data  string
	url   string
	flags []string
	cmd   *exec.Cmd
}

func (a *agent) start() {
	a.c.t.Helper()
	words := settings.Words(append([]string{
		"--nats", a.url, "--data-dir", a.data, "--kubernetes-node", lab.Node, "--node-labels", a.labels(),
		"--job-api", a.c.node + ":7480", "--sim-gpus", "2", "--sim-gpu-memory", "16", "--meter-interval", "200ms", "--log-level", "warn",
	}, a.flags...)...)
	a.cmd = kube.Exec(agentBinary, words.Flags...)
	a.cmd.Env = append(a.cmd.Environ(), words.Environ...)
	a.cmd.Stderr = os.Stderr
	if err := a.cmd.Start(); err != nil {
		a.c.t.Fatal(err)
	}
}

// labels returns a file with the node's labels: this agent is in no pod that could ask for them.
func (a *agent) labels() string {
	a.c.t.Helper()
	path := filepath.Join(a.data, "labels")
	err := os.MkdirAll(a.data, 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte("gpushare=\"true\"\n"), 0o600)
	}
	if err != nil {
		a.c.t.Fatal(err)
	}
	return path
}

func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// startBus starts a bus that the node reaches.
func startBus(t *testing.T, c *cluster, dir string) *bus.Bus {
	t.Helper()
	server, err := busserver.Start(busserver.Options{Open: true, Host: c.machine, Dir: filepath.Join(dir, "bus")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// beginning starts a bus and an agent beside it, and waits until the node is known.
func beginning(t *testing.T, c *cluster, flags ...string) (*agent, *bus.Bus, train.Node) {
	t.Helper()
	dir := shortDir(t)
	b := startBus(t, c, dir)
	a := &agent{c: c, data: filepath.Join(dir, "data"), url: b.URL(), flags: flags}
	a.start()
	t.Cleanup(a.kill)
	return a, b, awaitNode(t, b)
}

func awaitNode(t *testing.T, b *bus.Bus) train.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	nodes, err := bus.OpenKV(ctx, b, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	var n train.Node
	_ = nodes.Watch(ctx, func(e bus.Entry[train.Node], _ bool) { n = e.Value; cancel() }, nil)
	if n.ID != lab.Node || n.Backend != train.BackendKubernetes || len(n.Devices) != 2 || n.Devices[0].Units != 16 {
		t.Fatalf("node %+v", n)
	}
	return n
}

func TestGPUsOfARealKubelet(t *testing.T) {
	c := useCluster(t)
	a, _, n := beginning(t, c)
	first, second := n.Devices[0].Resource, n.Devices[1].Resource
	whole := func() { c.until("units of "+first, "16/16", func() string { return c.units(first) }) }
	whole()
	c.until("units of "+second, "16/16", func() string { return c.units(second) })
	half := func(name string) { c.create(pod{"default", name, map[string]int{first: 8}, nil}) }
	is := func(name, state string) {
		t.Helper()
		c.until("pod "+name, state, func() string { return c.podState("default", name) })
	}
	const running, insufficient = "Running 0", "Pending  0/1 nodes are available: 1 Insufficient switchyard.dev/gpu-"

	half("a")
	half("b")
	is("a", running)
	is("b", running)
	half("c")
	is("c", insufficient)
	name := "SWITCHYARD_JOB_GPU_" + strings.ToUpper(strings.TrimPrefix(first, "switchyard.dev/gpu-"))
	if got, want := c.output("a"), fmt.Sprintf("%s=%s\n%s_UNITS=8/16", name, n.Devices[0].UUID, name); got != want {
		t.Errorf("the container was given %q, want %q", got, want)
	}

	// A restarted kubelet finds the GPUs and remembers who has them.
	c.run("restart", "kubelet")
	whole()
	is("a", running)
	is("b", running)
	is("c", insufficient)
	c.delete("default", "a")
	is("c", running)

	// A killed agent takes the GPUs out of use, but not away from their pods.
	a.kill()
	c.until("units while no agent runs", "16/0", func() string { return c.units(first) })
	is("b", running)
	a.start()
	began := time.Now()
	whole()
	t.Logf("back at 16/16 after %s", time.Since(began).Round(100*time.Millisecond))
	half("d")
	is("d", insufficient)
	c.delete("default", "b")
	is("d", running)
	c.delete("default", "c")
	c.delete("default", "d")

	// Two whole GPUs in one container: both answers arrive.
	c.create(pod{"default", "two", map[string]int{first: 16, second: 16}, map[string]string{"WORK": "0s"}})
	is("two", "Succeeded")
	if got := c.output("two"); !strings.Contains(got, n.Devices[0].UUID) || !strings.Contains(got, n.Devices[1].UUID) || strings.Count(got, "=16/16\n") != 2 {
		t.Errorf("the container was given %q", got)
	}

	// A GPU in trouble: running pods continue, no new one is put there, and the other GPU is unchanged.
	half("e")
	is("e", running)
	sick := filepath.Join(a.data, "nodeagent", "sick-gpus")
	if err := os.WriteFile(sick, []byte("gpu:0"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.until("units of a GPU in trouble", "16/0", func() string { return c.units(first) })
	c.until("units of the other GPU", "16/16", func() string { return c.units(second) })
	is("e", running)
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	whole()
}

// The classic folder, for kubelets that do not watch the other one: the kubelet empties it when it starts.
func TestTheClassicFolderOfARealKubelet(t *testing.T) {
	c := useCluster(t)
	_, _, n := beginning(t, c, "--device-plugin-dir", "/var/lib/kubelet/device-plugins")
	resource := n.Devices[0].Resource
	for start := range 2 {
		if start > 0 {
			c.run("restart", "kubelet")
		}
		c.until("units", "16/16", func() string { return c.units(resource) })
		whole := pod{"default", fmt.Sprintf("classic-%d", start), map[string]int{resource: 16}, map[string]string{"WORK": "0s"}}
		c.admit(whole)
		c.until("pod "+whole.name, "Succeeded", func() string { return c.podState(whole.namespace, whole.name) })
	}
}

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func TestAJobsPodOnARealKubelet(t *testing.T) {
	c := useCluster(t)
	a, b, n := beginning(t, c)
	if n.Labels["gpushare"] != "true" {
		t.Errorf("labels %v", n.Labels)
	}
	name, attempt := trainInAPod(t, c, b, n, "Job_1")
	c.delete(jobsNamespace, name)
	for range 2 { // the second time after a kill of the agent
		checkOutput(t, c, b, n, attempt)
		a.kill()
		a.start()
	}
}

// The agent as a pod with few rights: it reads the node's labels, the processes of other users' jobs, and which devices
// the pods of others hold.
func TestTheAgentAsADaemonSet(t *testing.T) {
	c := useCluster(t)
	dir := shortDir(t)
	b := startBus(t, c, dir)
	manifest, err := os.ReadFile("testdata/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("NATS_URL", b.URL(), "DATA_DIR", filepath.Join(dir, "data")).Replace(string(manifest))
	c.kubectl("label", "node", lab.Node, "--overwrite", "gpushare=true")
	t.Cleanup(func() {
		if _, err := c.try(text, "delete", "--ignore-not-found", "--wait", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	c.feed(text, "apply", "-f", "-")
	n := awaitNode(t, b)
	if n.Labels["gpushare"] != "true" || n.Labels["kubernetes.io/hostname"] != lab.Node || n.JobAPI != c.node+":7480" || n.Memory < unit.GiB {
		t.Errorf("%+v", n)
	}
	_, attempt := trainInAPod(t, c, b, n, "Job_2")
	checkOutput(t, c, b, n, attempt)
	holder := pod{"default", "notebook", map[string]int{n.Devices[1].Resource: 16}, map[string]string{"WORK": "1h"}}
	c.admit(holder)
	t.Cleanup(func() { c.delete(holder.namespace, holder.name) })
	c.until("the holder of a GPU in the record of the node", "pod default/notebook", func() string { return awaitNode(t, b).Devices[1].HeldBy })
}

const jobsNamespace = "switchyard-jobs"

// trainInAPod runs a job's pod, as a user other than root, until it has ended.
func trainInAPod(t *testing.T, c *cluster, b *bus.Bus, n train.Node, job train.JobID) (pod string, a train.Attempt) {
	t.Helper()
	if _, err := c.try("", "get", "namespace", jobsNamespace); err != nil {
		c.kubectl("create", "namespace", jobsNamespace)
	}
	attempts, err := bus.OpenKV[train.Attempt](t.Context(), b, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	attempt := train.Attempt{
		Job: job, Number: 1, Namespace: jobsNamespace, Node: n.ID, Devices: []train.DeviceID{"gpu:0"}, Phase: train.PhaseRunning, CapabilityHash: hash("secret"), TokenHash: hash("token"),
	}
	if _, err := attempts.Swap(t.Context(), string(attempt.Job), attempt, 0); err != nil {
		t.Fatal(err)
	}
	worked := watchWork(t, b, attempt)
	name := train.PodName(attempt.Job, 1, 0)
	c.until("units", "16/16", func() string { return c.units(n.Devices[0].Resource) })
	c.admit(podOf(name, n, attempt))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case work := <-worked:
		t.Logf("%.2f core-seconds were attributed to the pod", work)
	case <-ctx.Done():
		t.Fatal("no work was attributed to the pod")
	}
	c.until("pod "+name, "Succeeded", func() string { return c.podState(jobsNamespace, name) })
	jobs, err := bus.OpenKV(ctx, b, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Swap(ctx, string(attempt.Job), train.Job{ID: attempt.Job, State: train.StateSucceeded}, 0); err != nil {
		t.Fatal(err)
	}
	return name, attempt
}

func podOf(name string, n train.Node, a train.Attempt) pod {
	return pod{jobsNamespace, name, map[string]int{n.Devices[0].Resource: 16}, map[string]string{
		train.MarkVariable: a.Name(), "SWITCHYARD_JOB_API": "http://" + n.JobAPI + "/attempt/token", "JOB_UUID": "secret", "WORK": "8s",
	}}
}

// checkOutput reads the output of an ended job from the agent.
func checkOutput(t *testing.T, c *cluster, b *bus.Bus, n train.Node, a train.Attempt) {
	t.Helper()
	var chunk rpc.LogChunk
	c.until("the agent's answer", "answers", func() string {
		var err error
		if chunk, err = bus.Ask[rpc.LogRequest, rpc.LogChunk](t.Context(), b, rpc.LogSubject(n.ID), rpc.LogRequest{Job: a.Job}); err != nil {
			return err.Error()
		}
		return "answers"
	})
	text := string(chunk.Data)
	if !chunk.Ended || !strings.HasPrefix(text, "[switchyard: attempt 1 of "+string(a.Job)+" on gpu:0, ") || !strings.HasSuffix(text, "worked 8s\n") ||
		strings.Count(text, "job API: 200 OK\n") != 1 || strings.Count(text, "SWITCHYARD_JOB_GPU_") != 2 {
		t.Errorf("ended %v:\n%s", chunk.Ended, text)
	}
}

// watchWork signals when half a second of a processor's work has been attributed to an attempt.
func watchWork(t *testing.T, b *bus.Bus, a train.Attempt) <-chan float64 {
	t.Helper()
	worked, sum := make(chan float64, 1), 0.0
	ctx, cancel := context.WithCancel(t.Context())
	var following conc.WaitGroup
	following.Go(func() {
		_ = b.Follow(ctx, event.StreamSamples, []string{"yard.energy.*.measured.v1"}, 1, func(m bus.Message) {
			var measured event.Measured
			if err := json.Unmarshal(m.Data, &measured); err != nil {
				t.Error(err)
			}
			for _, u := range measured.Users {
				if u.Job == a.Job && u.Attempt == a.Number {
					sum += u.Work
				}
			}
			if sum > 0.5 && ctx.Err() == nil {
				cancel()
				worked <- sum
			}
		})
	})
	t.Cleanup(func() { cancel(); following.Wait() })
	return worked
}
