// Package deploy tests the manifests: the whole of Switchyard as pods of a real Kubernetes.
package deploy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const manifests = "../../../deploy/k8s"

// site is a cluster with the manifests applied.
type site struct {
	t          *testing.T
	ctx        context.Context //nolint:containedctx // the length of one test
	dir        string
	devcluster string
}

func (s *site) run(name string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.ctx, name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "KUBECONFIG="+filepath.Join(s.dir, "cluster", "kubeconfig"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *site) cluster(args ...string) string {
	s.t.Helper()
	return s.run(s.devcluster, append(args, "--dir", filepath.Join(s.dir, "cluster"))...)
}

func (s *site) kubectl(args ...string) string {
	s.t.Helper()
	return s.run(s.devcluster, append([]string{"kubectl"}, args...)...)
}

// image gives the node an image around the program of a package.
func (s *site) image(name, pkg string, files ...string) {
	s.t.Helper()
	binary := filepath.Join(s.dir, name)
	s.run("go", "build", "-o", binary, pkg)
	args := []string{"image", "build", "--name", "docker.io/switchyard/" + name + ":latest", "--binary", binary}
	for _, f := range files {
		args = append(args, "--file", f)
	}
	s.cluster(args...)
}

// until polls for a condition.
func (s *site) until(what string, holds func() bool) {
	s.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-s.ctx.Done():
			s.t.Fatalf("%s: not seen in time\n%s", what, s.pods())
		case <-tick.C:
		}
	}
}

// pods is for failures: it does not end the test itself.
func (s *site) pods() string {
	cmd := exec.Command(s.devcluster, "kubectl", "get", "pods,events", "-A")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(s.dir, "cluster", "kubeconfig"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func (s *site) connect() *bus.Bus {
	s.t.Helper()
	address := s.kubectl("-n", "switchyard", "get", "pod", "bus-0", "-o", "jsonpath={.status.podIP}")
	b, err := bus.Connect(s.ctx, bus.Config{URL: "nats://switchyard:development@" + address + ":4222", Name: "cli"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(b.Close)
	return b
}

// TestTheManifestsRunJobs applies the manifests, submits jobs by events, kills every executor and planner in the middle of the work, and sees both jobs through:
// one shrinks for the other by its checkpoint. The other overlays are checked by the API server alone.
func TestTheManifestsRunJobs(t *testing.T) {
	devcluster := os.Getenv("DEVCLUSTER")
	if devcluster == "" {
		t.Skip("DEVCLUSTER names no program that starts a cluster (make e2e-kube does)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	s := &site{t: t, ctx: ctx, dir: t.TempDir(), devcluster: devcluster}
	t.Cleanup(func() {
		down := exec.Command(devcluster, "down", "--dir", filepath.Join(s.dir, "cluster"))
		if out, err := down.CombinedOutput(); err != nil {
			t.Errorf("end the cluster: %v\n%s", err, out)
		}
	})
	s.cluster("up")
	for _, name := range []string{"admission", "profiler", "planner", "energy", "nodeagent"} {
		s.image(name, "../../../services/"+name+"/cmd/"+name)
	}
	trainer := filepath.Join(s.dir, "switchyard-trainer")
	s.run("go", "build", "-o", trainer, "../../../examples/gotrainer")
	s.image("executor", "../../../services/executor/cmd/executor", "/usr/local/bin/switchyard-trainer="+trainer)
	s.image("nats-server", "github.com/nats-io/nats-server/v2")

	s.kubectl("apply", "-f", filepath.Join(manifests, "base", "namespaces.yaml"))
	s.kubectl("apply", "--dry-run=server", "-k", filepath.Join(manifests, "overlays", "development"))
	s.kubectl("apply", "-k", filepath.Join(manifests, "overlays", "lab"))
	for _, what := range []string{"statefulset/bus", "deploy/admission", "deploy/profiler", "deploy/planner", "deploy/energy", "deploy/executor"} {
		s.kubectl("-n", "switchyard", "rollout", "status", what, "--timeout=3m")
	}
	s.kubectl("-n", "switchyard-nodes", "rollout", "status", "ds/nodeagent", "--timeout=3m")

	b := s.connect()
	jobs, err := bus.OpenKV[train.Job](ctx, b, event.BucketJobs)
	if err != nil {
		t.Fatal(err)
	}
	job := func(id train.JobID) train.Job {
		e, err := jobs.Get(ctx, string(id))
		if err != nil {
			return train.Job{}
		}
		return e.Value
	}
	submit := func(id train.JobID, priority int) {
		spec := train.Spec{
			Name: string(id), Command: []string{"/usr/local/bin/switchyard-trainer", "-hidden", "128"}, BatchSize: 32, TrainingSetSize: 4000, MaxEpochs: 60, MaxDevices: 2,
			Priority: &priority,
		}
		if err := b.Publish(ctx, event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})); err != nil {
			t.Fatal(err)
		}
	}
	submit("wide", 50)
	s.until("wide on both GPUs", func() bool { j := job("wide"); return len(j.Devices) == 2 && j.EpochsDone > 0 })
	submit("urgent", 80)
	s.until("both run", func() bool { return job("wide").Rescales > 0 && job("urgent").EpochsDone > 0 })
	s.kubectl("-n", "switchyard", "delete", "pod", "-l", "app.kubernetes.io/name in (executor,planner)", "--force", "--grace-period=0")
	s.until("both have ended", func() bool { return job("wide").State.Terminal() && job("urgent").State.Terminal() })
	for _, id := range []train.JobID{"wide", "urgent"} {
		if j := job(id); j.State != train.StateSucceeded || j.EpochsDone != 60 || j.Recoveries != 0 {
			t.Errorf("job %s: %s after %d epochs, %d recoveries: %s", id, j.State, j.EpochsDone, j.Recoveries, j.Message)
		}
	}
	if left := s.kubectl("-n", "switchyard-jobs", "get", "pods", "-o", "name"); left != "" {
		t.Errorf("pods are left over: %s", left)
	}
}
