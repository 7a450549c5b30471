// Package objects tests jobs that are objects of Kubernetes: a real API server without nodes, and beside it Switchyard,
// the jobs of which are processes of this machine.
package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/services/web/view"
	"github.com/switchyard-dl/switchyard/test/kube/lab"
)

// cluster is an API server; binaries is the folder of Switchyard's programs. Both are empty without a development
// cluster.
var (
	cluster  *lab.Cluster
	binaries string
)

func TestMain(m *testing.M) {
	if lab.Program() == "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "sy") // short: there are sockets in it
	if err == nil {
		binaries = dir
		err = prepare(context.Background())
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	if cluster != nil {
		_ = cluster.Down()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func prepare(ctx context.Context) (err error) {
	for name, pkg := range map[string]string{"switchyard": "cmd/switchyard", "switchyard-server": "cmd/switchyard-server", "switchyard-supervisor": "cmd/switchyard-supervisor"} {
		if err := lab.Build(ctx, filepath.Join(binaries, name), "../../../"+pkg); err != nil {
			return err
		}
	}
	if cluster, err = lab.Start(ctx, filepath.Join(binaries, "cluster"), "--no-kubelet"); err != nil {
		return err
	}
	if _, err = cluster.Kubectl(ctx, "apply", "-f", resource, "-f", "testdata/trainjobs.yaml"); err == nil {
		_, err = cluster.Kubectl(ctx, "wait", "--for=condition=Established", "crd/trainingjobs.switchyard.dev", "crd/trainjobs.trainer.kubeflow.org", "--timeout=30s")
	}
	return err
}

// yard is a Switchyard beside the cluster.
type yard struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // the length of one test
	dir string
}

func newYard(t *testing.T) *yard {
	t.Helper()
	if cluster == nil {
		t.Skip("DEVCLUSTER names no program that starts a cluster (make e2e-kube does)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	dir, err := os.MkdirTemp(binaries, "y")
	y := &yard{t: t, ctx: ctx, dir: dir}
	y.must(err)
	return y
}

// up starts Switchyard. The end of the test ends it, and its jobs.
func (y *yard) up() {
	y.t.Helper()
	var said bytes.Buffer
	server := y.switchyard("up", "--port", "0", "--node", "here", "--label", "flavor=spot", "--log-level", "warn")
	server.Env = append(server.Env, "SWITCHYARD_WEB_TRAINING_JOBS=true", "SWITCHYARD_WEB_TRAIN_JOBS=true", "KUBECONFIG="+cluster.Kubeconfig())
	server.Stdout, server.Stderr = &said, &said
	y.must(server.Start())
	y.t.Cleanup(func() {
		_ = y.switchyard("cancel", "--state", "queued,running,profiling,paused", "--yes").Run()
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
		if y.t.Failed() {
			y.t.Logf("Switchyard says:\n%s", said.Bytes())
		}
	})
}

func (y *yard) switchyard(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(y.ctx), filepath.Join(binaries, "switchyard"), args...)
	cmd.Env = append(os.Environ(), "HOME="+y.dir, "SWITCHYARD_DATA_DIR="+filepath.Join(y.dir, "data"), "SWITCHYARD_WEB_LISTEN=")
	return cmd
}

// job returns the line of a job in the list of jobs; it is empty if there is none.
func (y *yard) job(id string) view.Job {
	y.t.Helper()
	out, err := y.switchyard("ps", "--all", "-o", "json").Output()
	if err != nil {
		return view.Job{} // Switchyard begins
	}
	var jobs []view.Job
	y.must(json.Unmarshal(out, &jobs))
	for _, j := range jobs {
		if string(j.ID) == id {
			return j
		}
	}
	return view.Job{}
}

func (y *yard) must(err error) {
	y.t.Helper()
	if err != nil {
		y.t.Fatal(err)
	}
}

func (y *yard) until(what string, holds func() bool) {
	y.t.Helper()
	ctx, cancel := context.WithTimeout(y.ctx, 90*time.Second)
	defer cancel()
	if !lab.Await(ctx, holds) {
		out, _ := cluster.Kubectl(y.ctx, "get", "trainingjobs,trainjobs", "-A", "-o", "yaml")
		y.t.Fatalf("%s: not seen in time; the objects:\n%s", what, out)
	}
}

func (y *yard) kubectl(args ...string) string {
	y.t.Helper()
	out, err := cluster.Kubectl(y.ctx, args...)
	y.must(err)
	return out
}

func (y *yard) apply(manifest string) {
	y.t.Helper()
	_, err := cluster.Feed(y.ctx, manifest, "apply", "-f", "-")
	y.must(err)
}

// patch changes the spec of an object.
func (y *yard) patch(object, spec string) {
	y.t.Helper()
	y.kubectl("patch", object, "--type=merge", "-p", `{"spec": `+spec+`}`)
}

// get returns a field of an object.
func (y *yard) get(object, field string) string {
	y.t.Helper()
	return y.kubectl("get", object, "-o", "jsonpath={."+field+"}")
}

// columns returns the lines of a table without their blanks.
func columns(table string) []string {
	lines := strings.Split(table, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return lines
}
