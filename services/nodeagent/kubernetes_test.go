package nodeagent

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// shortDir is short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// unitsOf returns what the kubelet learns of a GPU: all units, and the healthy ones.
func unitsOf(t *testing.T, socket string) (all, healthy int) {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	units, err := kubelet.NewDevicePluginClient(connection).ListAndWatch(within(t), &kubelet.Empty{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := units.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range answer.Devices {
		if d.Health == kubelet.Healthy {
			healthy++
		}
	}
	return len(answer.Devices), healthy
}

func TestTheWholeAgentOnANodeOfKubernetes(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t)
	b := bustest.Connect(t, server, "test")
	tables, err := openTables(within(t), b)
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	put(t, filepath.Join(dir, "labels"), "gpushare=\"true\"\n")
	start(t, server.URL(), filepath.Join(dir, "data"), "--kubernetes-node=n1", "--node-labels="+filepath.Join(dir, "labels"), "--device-kind=auto", "--sim-gpus=2",
		"--sim-gpu-memory=24", "--kubelet-root="+filepath.Join(dir, "kubelet"), "--pod-logs="+filepath.Join(dir, "pods"), "--job-api=127.0.0.2:0")
	n := node(t, b, time.Time{})
	checkNode(t, n)
	if made, err := os.Stat(filepath.Join(dir, "data", "snapshots")); err != nil || made.Mode() != fs.ModeDir|fs.ModeSticky|fs.ModePerm {
		t.Errorf("the folder of snapshots: %v %v, want one in which jobs of any user can save", made, err)
	}
	for _, d := range n.Devices {
		socket := filepath.Join(dir, "kubelet", "plugins_registry", "switchyard-gpu-"+strings.TrimPrefix(d.Resource, "switchyard.dev/gpu-")+".sock")
		if all, healthy := unitsOf(t, socket); all != d.Units || healthy != all {
			t.Errorf("the kubelet gets %d units, %d of them healthy, the planner of %d", all, healthy, d.Units)
		}
	}
	// Training code in a pod, rank 1 of a gang whose home is here.
	attempt := train.Attempt{
		Job: "j1", Number: 1, Namespace: "switchyard-jobs", Phase: train.PhaseRunning, CapabilityHash: train.Hash("secret"), TokenHash: train.Hash("token"),
		Parts: []train.Part{{Node: "n1", Devices: []train.DeviceID{"gpu:0"}}, {Node: "n2", Devices: []train.DeviceID{"gpu:0"}}},
	}
	if _, err := tables.attempts.Swap(within(t), "j1", attempt, 0); err != nil {
		t.Fatal(err)
	}
	post(t, http.DefaultClient, "http://"+n.JobAPI+"/attempt/token/v1/jobs/secret/epochs", `{"epochs_done":1,"rank":1}`)
	checkLog(t, b, tables, filepath.Join(dir, "pods"))
	// A failing GPU is not offered, and comes back.
	sick := filepath.Join(dir, "data", "nodeagent", "sick-gpus")
	put(t, sick, "gpu:1")
	untilDevices(t, tables.nodes, 1)
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	untilDevices(t, tables.nodes, 2)
}

func checkNode(t *testing.T, n train.Node) {
	t.Helper()
	want := train.Node{
		ID: "n1", Backend: train.BackendKubernetes, Name: "n1", Labels: map[string]string{"gpushare": "true"}, Meters: []string{"modelled"},
		Devices: []train.Device{
			{ID: "gpu:0", Kind: train.KindGPU, Model: "simulated", Memory: 24 * unit.GiB, Simulated: true, Enforcement: train.EnforcedByAdvice, Units: 24},
			{ID: "gpu:1", Kind: train.KindGPU, Model: "simulated", Memory: 24 * unit.GiB, Simulated: true, Enforcement: train.EnforcedByAdvice, Units: 24},
		},
	}
	ofTheMachine := cmpopts.IgnoreFields(train.Node{}, "Version", "Owner", "BootID", "Cores", "Memory", "ContainerRuntime", "JobAPI", "SeenAt")
	if diff := cmp.Diff(want, n, ofTheMachine, cmpopts.IgnoreFields(train.Device{}, "UUID", "Resource")); diff != "" {
		t.Errorf("node (-want +got)\n%s", diff)
	}
	if !strings.HasPrefix(n.JobAPI, "127.0.0.2:") {
		t.Errorf("the job API is at %s", n.JobAPI)
	}
}

// checkLog writes as a container of rank 0 would and asks as the command line does.
func checkLog(t *testing.T, b *bus.Bus, tables tables, pods string) {
	t.Helper()
	ask := func() (rpc.LogChunk, error) {
		return bus.Ask[rpc.LogRequest, rpc.LogChunk](within(t), b, rpc.LogSubject("n1"), rpc.LogRequest{Job: "j1"})
	}
	if _, err := ask(); err == nil || !strings.Contains(err.Error(), "no output here") {
		t.Errorf("error %v of a job that is not known to have begun", err)
	}
	if _, err := tables.jobs.Swap(within(t), "j1", train.Job{ID: "j1", State: train.StateSucceeded}, 0); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(pods, "switchyard-jobs_"+train.PodName("j1", 1, 0)+"_uid", "main", "0.log"), "2026-01-02T03:04:05Z stdout F hello\n")
	// After the end of a job everything is read before the answer.
	chunk, err := ask()
	want := "[switchyard: attempt 1 of j1 on n1/gpu:0 n2/gpu:0, 2026-01-02T03:04:05Z]\nhello\n"
	if err != nil || string(chunk.Data) != want || !chunk.Ended {
		t.Errorf("%q, ended %v, error %v", chunk.Data, chunk.Ended, err)
	}
}

// untilDevices waits until the node offers this many devices.
func untilDevices(t *testing.T, nodes *bus.KV[train.Node], want int) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	got := -1
	_ = nodes.Watch(ctx, func(e bus.Entry[train.Node], _ bool) {
		if got = len(e.Value.Devices); got == want {
			cancel()
		}
	}, nil)
	if got != want {
		t.Errorf("%d devices are offered, want %d", got, want)
	}
}

// A rank on a node that is not the gang's home is rejected: if it were answered here, the ranks could get different
// answers.
func TestTheRanksOfAGangComeToOneAgent(t *testing.T) {
	server := bustest.Start(t)
	b := bustest.Connect(t, server, "test")
	start(t, server.URL(), shortDir(t))
	n := node(t, b, time.Time{})
	attempts, err := bus.OpenKV[train.Attempt](within(t), b, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	attempt := train.Attempt{
		Job: "j1", Number: 1, Namespace: "switchyard-jobs", Phase: train.PhaseRunning, CapabilityHash: train.Hash("secret"), TokenHash: train.Hash("token"),
		Parts: []train.Part{{Node: "n0"}, {Node: "n1"}},
	}
	if _, err := attempts.Swap(within(t), "j1", attempt, 0); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + n.JobAPI + "/attempt/token/v1/jobs/secret/control") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusConflict {
		t.Errorf("status %d, want %d", response.StatusCode, http.StatusConflict)
	}
}

// A program writes a log and calls nothing. Its agent is stopped while it trains, and comes back when the pod has
// ended.
func TestEpochsInTheOutputOfPods(t *testing.T) {
	server := bustest.Start(t)
	b := bustest.Connect(t, server, "test")
	tables, err := openTables(within(t), b)
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	agent := func() (stop func()) {
		return start(t, server.URL(), filepath.Join(dir, "data"), "--kubernetes-node=n1", "--node-labels="+filepath.Join(dir, "labels"),
			"--kubelet-root="+filepath.Join(dir, "kubelet"), "--pod-logs="+filepath.Join(dir, "pods"), "--job-api=127.0.0.2:0")
	}
	put(t, filepath.Join(dir, "labels"), "")
	written := ""
	write := func(epoch int, words string) {
		written += fmt.Sprintf("2026-01-02T03:04:05Z stdout F 2026-01-02 03:04:05 INFO  DistriOptimizer$:408 - [Epoch %d 8/8][Iteration %d][Wall Clock 1s] %s\n", epoch, epoch, words)
		put(t, filepath.Join(dir, "pods", "switchyard-jobs_"+train.PodName("j1", 1, 0)+"_uid", "job", "0.log"), written)
	}
	attempt := train.Attempt{
		Job: "j1", Number: 1, Namespace: "switchyard-jobs", Node: "n1", Phase: train.PhaseRunning, StartedAt: time.Now(), LogFormat: train.LogBigDL, CapabilityHash: train.Hash("secret"), TokenHash: train.Hash("token"),
	}
	revision, err := tables.attempts.Swap(within(t), "j1", attempt, 0)
	if err != nil {
		t.Fatal(err)
	}
	report := func(what string, fits func(train.AttemptReport) bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		seen := false
		_ = tables.reports.Watch(ctx, func(e bus.Entry[train.AttemptReport], _ bool) {
			if seen = seen || fits(e.Value); seen {
				cancel()
			}
		}, nil)
		if !seen {
			t.Fatalf("no report of %s", what)
		}
	}
	stop := agent()
	write(1, "Epoch finished. Wall clock time is 1500 ms")
	write(2, "Trained 8 records in 1 seconds. Throughput is 8 records/second. Loss is 0.5. x")
	report("the first epoch", func(r train.AttemptReport) bool { return r.EpochsDone == 1 })
	stop()
	write(2, "Epoch finished. Wall clock time is 4000 ms")
	write(3, "Epoch finished. Wall clock time is 5000 ms")
	attempt.Phase = train.PhaseExited
	if _, err := tables.attempts.Swap(within(t), "j1", attempt, revision); err != nil {
		t.Fatal(err)
	}
	agent()
	report("the end", func(r train.AttemptReport) bool { return r.OutputRead && !r.Spoke })
	var reported []string
	if err := b.Stored(within(t), event.StreamJobs, []string{"yard.job.j1.>"}, time.Time{}, func(m bus.Message) {
		e, err := event.Decode[event.EpochEnded](m.Data)
		reported = append(reported, fmt.Sprintf("%d: %g s, %d steps, error %v", e.EpochsDone, e.EpochSeconds, e.Steps, err))
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"1: 1.5 s, 0 steps, error <nil>", "2: 2.5 s, 1 steps, error <nil>", "3: 1 s, 0 steps, error <nil>"}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("got (-want +got)\n%s", diff)
	}
}
