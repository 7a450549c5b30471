// Package deploy tests the manifests: the whole of Switchyard as pods of a real Kubernetes.
package deploy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/kube/lab"
)

const manifests = "../../../deploy/k8s"

// dashboards belong to the manifests with monitoring.
const dashboards = "../../../deploy/grafana"

// cluster has the images of all services; commandLine is the program that a person types. Both are empty without a
// development cluster.
var (
	cluster     *lab.Cluster
	commandLine string
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m, prepare)) }

func prepare(c *lab.Cluster, dir string) error {
	ctx := context.Background()
	cluster, commandLine = c, filepath.Join(dir, "switchyard")
	trainer := filepath.Join(dir, "switchyard-trainer")
	if err := lab.Build(ctx, trainer, "../../../examples/gotrainer"); err != nil {
		return err
	}
	server := filepath.Join(dir, "switchyard-server")
	if err := lab.Build(ctx, server, "../../../cmd/switchyard-server"); err != nil {
		return err
	}
	if err := c.Image(ctx, "docker.io/switchyard/switchyard:latest", commandLine, "../../../cmd/switchyard", "/switchyard-server="+server); err != nil {
		return err
	}
	packages := map[string]string{}
	for _, name := range append(services(), "nodeagent") {
		packages[name] = "../../../services/" + name + "/cmd/" + name
	}
	for name, pkg := range packages {
		var files []string
		if name == "executor" {
			files = []string{"/usr/local/bin/switchyard-trainer=" + trainer}
		}
		if err := c.Image(ctx, "docker.io/switchyard/"+name+":latest", filepath.Join(dir, name), pkg, files...); err != nil {
			return err
		}
	}
	return nil
}

// site is an applied overlay.
type site struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // the length of one test
	bus  *bus.Bus
	at   bus.Config
	jobs *bus.KV[train.Job]
}

// services returns the names of the deployments of the manifests.
func services() []string {
	return []string{"admission", "profiler", "planner", "energy", "experiments", "web", "executor"}
}

// begin creates the namespaces.
func begin(t *testing.T) *site {
	t.Helper()
	s := start(t)
	s.kubectl("apply", "-f", filepath.Join(manifests, "base", "namespaces.yaml"))
	return s
}

// start prepares a test of an installation; its end removes all that an installation has made.
func start(t *testing.T) *site {
	t.Helper()
	if cluster == nil {
		t.Skip("DEVCLUSTER names no program that starts a cluster (make e2e-kube does)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	s := &site{t: t, ctx: ctx}
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			s.dump()
		}
		if out, err := cluster.Kubectl(context.Background(), "delete", "--ignore-not-found", "namespace", "switchyard", "switchyard-nodes", "switchyard-jobs", "--timeout=2m"); err != nil {
			t.Errorf("remove the overlay: %v\n%s", err, out)
		}
		if out, err := cluster.Kubectl(context.Background(), "delete", "--ignore-not-found", "--timeout=1m", "validatingadmissionpolicybinding/switchyard-jobs",
			"validatingadmissionpolicy/switchyard-jobs", "validatingadmissionpolicybinding/switchyard-nodeagent", "validatingadmissionpolicy/switchyard-nodeagent", "deviceclass/gpu.switchyard.dev",
			"persistentvolume/switchyard-snapshots", "persistentvolume/switchyard-bus", "customresourcedefinition/trainingjobs.switchyard.dev"); err != nil {
			t.Errorf("remove what is in no namespace: %v\n%s", err, out)
		}
		// The agent would say that the next bus has lost what this one had. The folder itself is mounted.
		left, err := filepath.Glob(filepath.Join(cluster.Dir(), "private/var/lib/switchyard/*"))
		for _, path := range left {
			err = errors.Join(err, os.RemoveAll(path))
		}
		if err != nil {
			t.Error(err)
		}
	})
	return s
}

// apply applies an overlay and waits until all of it works.
func apply(t *testing.T, overlay string) *site {
	t.Helper()
	s := begin(t)
	dir, keys := s.overlay(overlay)
	s.kubectl("apply", "-k", dir)
	s.works(keys)
	return s
}

// rolledOut waits for the bus, all services and the agents.
func (s *site) rolledOut() {
	s.t.Helper()
	s.kubectl("-n", "switchyard", "rollout", "status", "statefulset/bus", "--timeout=4m")
	for _, service := range services() {
		s.kubectl("-n", "switchyard", "rollout", "status", "deploy/"+service, "--timeout=4m")
	}
	s.kubectl("-n", "switchyard-nodes", "rollout", "status", "ds/nodeagent", "--timeout=3m")
}

// works waits until all of an installation works, and connects to its bus as an operator.
func (s *site) works(keys identity.Keys) {
	s.t.Helper()
	s.rolledOut()
	var servers []string
	for address := range strings.FieldsSeq(s.kubectl("-n", "switchyard", "get", "pods", "-l", "app.kubernetes.io/name=bus", "-o", "jsonpath={.items[*].status.podIP}")) {
		servers = append(servers, "nats://"+address+":4222")
	}
	secure, err := keys.TLS()
	s.must(err)
	secure.ServerName = "bus.switchyard.svc"
	s.at = bus.Config{URL: strings.Join(servers, ","), Name: "cli", Keys: string(keys), Options: []nats.Option{nats.Secure(secure)}}
	s.bus, err = bus.Connect(s.ctx, s.at)
	s.must(err)
	s.t.Cleanup(s.bus.Close)
	s.jobs, err = bus.OpenKV(s.ctx, s.bus, contract.Jobs)
	s.must(err)
}

// overlay returns a folder with an overlay and the keys that its user makes first, and the operator's keys.
func (s *site) overlay(name string) (dir string, keys identity.Keys) {
	s.t.Helper()
	root := s.t.TempDir()
	s.must(os.CopyFS(filepath.Join(root, "k8s"), os.DirFS(manifests)))
	s.must(os.CopyFS(filepath.Join(root, "grafana"), os.DirFS(dashboards)))
	dir = filepath.Join(root, "k8s/overlays", name)
	made := filepath.Join(dir, "keys")
	s.must(identity.Keys(made).Deploy(identity.Deployment{Kubernetes: true})) // switchyard bus accounts --kubernetes
	return dir, identity.Keys(filepath.Join(made, identity.Operator))
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) kubectl(args ...string) string {
	s.t.Helper()
	out, err := cluster.Kubectl(s.ctx, args...)
	s.must(err)
	return out
}

// until polls for a condition.
func (s *site) until(what string, holds func() bool) {
	s.t.Helper()
	if !lab.Await(s.ctx, holds) {
		s.t.Fatalf("%s: not seen in time", what)
	}
}

// dump prints the state for failures.
func (s *site) dump() {
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "events", "-A", "--field-selector=type=Warning"},
		{"logs", "-n", "switchyard", "-l", "app.kubernetes.io/component=service", "--tail=20", "--prefix"},
		{"logs", "-n", "switchyard", "-l", "app.kubernetes.io/name=bus", "--tail=20", "--prefix"},
		{"logs", "-n", "switchyard-nodes", "-l", "app.kubernetes.io/name=nodeagent", "--tail=20"},
	} {
		out, err := cluster.Kubectl(context.Background(), args...)
		s.t.Logf("kubectl %q (%v):\n%s", args, err, out)
	}
}

// job returns the register's record of a job, empty without an answer.
func (s *site) job(id train.JobID) train.Job {
	e, err := s.jobs.Get(s.ctx, string(id))
	if err != nil {
		return train.Job{}
	}
	return e.Value
}

// submit publishes a job of the trainer.
func (s *site) submit(id train.JobID, change func(*train.Spec)) {
	s.t.Helper()
	spec := train.Spec{
		Name: string(id), Command: []string{"/usr/local/bin/switchyard-trainer", "-hidden", "128"}, BatchSize: 32, TrainingSetSize: 4000, MaxEpochs: 60, MaxDevices: 2,
		Env: map[string]string{"TRAIN_LEDGER": "/snapshots/ledger"},
	}
	change(&spec)
	s.must(s.bus.Publish(s.ctx, event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})))
}

// succeeded waits until jobs of 60 epochs have succeeded, and fails if an attempt was lost or anything ran twice.
func (s *site) succeeded(ids ...train.JobID) {
	s.t.Helper()
	s.until("the end of all jobs", func() bool {
		return !slices.ContainsFunc(ids, func(id train.JobID) bool { return !s.job(id).State.Terminal() })
	})
	for _, id := range ids {
		if j := s.job(id); j.State != train.StateSucceeded || j.EpochsDone != 60 || j.Recoveries != 0 {
			s.t.Errorf("job %s: %s after %d epochs, %d recoveries: %s", id, j.State, j.EpochsDone, j.Recoveries, j.Message)
		}
		ledger, err := lab.ReadLedger(filepath.Join(cluster.Dir(), "private/var/lib/switchyard/snapshots", string(id), "ledger"))
		if faults := ledger.Faults(); err != nil || len(faults) > 0 {
			s.t.Errorf("job %s: %v %v", id, faults, err)
		}
	}
	s.until("no pod is left over", func() bool { return s.kubectl("-n", "switchyard-jobs", "get", "pods", "-o", "name") == "" })
}
