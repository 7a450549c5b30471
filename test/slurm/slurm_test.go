// Package slurm tests the agent that lives in an allocation of Slurm: with Debian's Slurm on this machine, and the
// script that people submit.
package slurm

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/test/slurm/slurmd"
)

// script trains until a file appears, an epoch every half second, and says after which epoch each attempt began. It
// saves in its working folder, which both machines share.
const script = `import json, os, time, switchyard
saved = "state-" + os.path.basename(os.environ["ENOUGH"])
with switchyard.job() as job:
    state = json.load(open(saved)) if os.path.exists(saved) else {"epochs": 0}
    print("an attempt begins after epoch", state["epochs"], flush=True)
    for epoch in job.epochs():
        if os.path.exists(os.environ["ENOUGH"]):
            break
        time.sleep(0.5)
        state["epochs"] += 1
        with open(saved + ".new", "w") as new:
            json.dump(state, new)
        os.replace(saved + ".new", saved)
        job.report(loss=1 / (1 + state["epochs"]))
`

// lab is a server with Switchyard and a cluster with Slurm, which share a file system.
type lab struct {
	t       *testing.T
	dir     string
	environ []string
}

// newLab starts both. A machine that cannot have them fails the test: `make e2e-slurm` is never green for nothing.
func newLab(t *testing.T) *lab {
	t.Helper()
	bin := os.Getenv("SLURM_BIN")
	if bin == "" {
		t.Skip("make e2e-slurm builds the programs and names their folder in SLURM_BIN; it takes minutes and root")
	}
	if err := slurmd.Missing(); err != nil {
		t.Fatal(err)
	}
	python, err := filepath.Abs("../../libs/python")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: t.TempDir()}
	port := strconv.Itoa(bustest.FreePort(t))
	l.environ = append(
		slurmd.Start(t), "HOME="+l.dir, "PATH="+bin+":"+os.Getenv("PATH"), "SWITCHYARD_CONTEXT="+l.in("context.json"), "PYTHONPATH="+python,
		"SWITCHYARD_NATS=nats://127.0.0.1:"+port, "SWITCHYARD_KEYS="+l.in("server/keys"), "ALLOCATIONS="+l.in("allocations"),
	)
	log, err := os.Create(l.in("server.log"))
	if err != nil {
		t.Fatal(err)
	}
	server := l.command("switchyard-server", "up", "--data-dir", l.in("server"), "--port", port, "--node", "server", "--device-kind", "cpu", "--cpu-slots", "1")
	server.Env = slices.DeleteFunc(slices.Clone(l.environ), func(v string) bool {
		return strings.HasPrefix(v, "SWITCHYARD_NATS=") || strings.HasPrefix(v, "SWITCHYARD_KEYS=")
	})
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
		if text, err := os.ReadFile(l.in("server.log")); err == nil && t.Failed() {
			t.Logf("server:\n%s", text)
		}
	})
	l.until("the server's node", func() bool { return l.nodes()["server"].State == "ready" })
	return l
}

func (l *lab) in(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) command(words ...string) *exec.Cmd {
	path := words[0]
	if found := filepath.Join(os.Getenv("SLURM_BIN"), words[0]); exists(found) {
		path = found
	}
	cmd := exec.CommandContext(l.t.Context(), path, words[1:]...)
	cmd.Env, cmd.Dir = l.environ, l.dir
	return cmd
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func (l *lab) run(words ...string) string {
	l.t.Helper()
	out, err := l.command(words...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%q: %v\n%s", words, err, out)
	}
	return string(out)
}

func (l *lab) until(what string, holds func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 3*time.Minute)
	defer cancel()
	for range tick.Every(ctx, 300*time.Millisecond) {
		if holds() {
			return
		}
	}
	l.t.Fatalf("%s did not come in three minutes", what)
}

type node struct {
	ID, State string
	Jobs      []string
}

func (l *lab) nodes() map[string]node {
	var list []node
	if out, err := l.command("switchyard", "node", "list", "-o", "json").Output(); err != nil || json.Unmarshal(out, &list) != nil {
		return nil
	}
	byID := map[string]node{}
	for _, n := range list {
		byID[n.ID] = n
	}
	return byID
}

// allocate submits the script, as people do, and returns the name of its node once that takes jobs.
func (l *lab) allocate(options ...string) string {
	l.t.Helper()
	agent, err := filepath.Abs("../../examples/slurm/agent.sbatch")
	if err != nil {
		l.t.Fatal(err)
	}
	id := strings.TrimSpace(l.run(slices.Concat([]string{"sbatch", "--parsable", "--output", l.in("agent-%j.log")}, options, []string{agent})...))
	l.t.Cleanup(func() {
		_ = l.command("scancel", "--signal=KILL", "--full", id).Run()
		if text, err := os.ReadFile(l.in("agent-" + id + ".log")); err == nil && l.t.Failed() {
			l.t.Logf("agent %s:\n%s", id, text)
			after, _ := os.ReadFile(l.in("allocations/slurm-" + id + "/after.log"))
			l.t.Logf("after it:\n%s", after)
		}
	})
	l.until("the node of allocation "+id, func() bool { return l.nodes()["slurm-"+id].State == "ready" })
	return "slurm-" + id
}

// attempts are the epochs after which the attempts of a job on the server began.
func (l *lab) attempts(job string) []string {
	var said []string
	text, _ := os.ReadFile(l.in("server/jobs/" + job + "/output.log"))
	for line := range strings.Lines(string(text)) {
		if _, rest, is := strings.Cut(line, "an attempt begins after epoch "); is {
			said = append(said, strings.TrimSpace(rest))
		}
	}
	return said
}

func (l *lab) submit(id string) {
	l.t.Helper()
	for name, text := range map[string]string{"train.py": script} {
		if err := os.WriteFile(l.in(name), []byte(text), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
	env := l.in("env")
	values := "ENOUGH=" + l.in("enough-"+id) + "\nPYTHONPATH=" + filepath.Dir(l.python()) + "\n"
	if err := os.WriteFile(env, []byte(values), 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.run("switchyard", "submit", "--id", id, "--name", id, "--max-epochs", "10000", "--batch-size", "1", "--training-set-size", "1",
		"--env-file", env, "--checkpoint", "state-*", "--work-dir", l.dir, "--", "python3", "train.py")
}

func (l *lab) python() string {
	l.t.Helper()
	path, err := filepath.Abs("../../libs/python/switchyard")
	if err != nil {
		l.t.Fatal(err)
	}
	return path
}

// finish lets a job end, and checks that its last attempt on the server went on from a checkpoint.
func (l *lab) finish(job string) {
	l.t.Helper()
	l.until("the attempt on the server", func() bool { return len(l.attempts(job)) > 0 })
	if err := os.WriteFile(l.in("enough-"+job), nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.run("switchyard", "wait", job)
	said := l.attempts(job)
	l.t.Logf("%s went on after epoch %q", job, said)
	if slices.Contains(said, "0") {
		l.t.Errorf("%s began again on the server: %q", job, said)
	}
}

// TestJobsLeaveAnAllocationBeforeItEnds: Slurm's own signal comes, the node is drained, and the job goes on elsewhere
// from its checkpoint while the allocation ends well within its time.
func TestJobsLeaveAnAllocationBeforeItEnds(t *testing.T) {
	l := newLab(t)
	l.run("switchyard", "node", "cordon", "server")
	l.submit("moved")
	node := l.allocate("--time=3", "--signal=B:USR1@110")
	l.until("the job in the allocation", func() bool { return len(l.nodes()[node].Jobs) == 1 })
	l.run("switchyard", "node", "resume", "server")
	id := strings.TrimPrefix(node, "slurm-")
	l.until("the end of the allocation", func() bool { return strings.TrimSpace(l.state(id)) == "COMPLETED" })
	l.until("the job on the server", func() bool { return slices.Contains(l.nodes()["server"].Jobs, "moved") })
	l.finish("moved")
}

// TestJobsOfAKilledAllocationGoOnElsewhere: Slurm kills the allocation without a warning, what runs after it reports
// that nothing is left there, and the job goes on elsewhere from its checkpoint.
func TestJobsOfAKilledAllocationGoOnElsewhere(t *testing.T) {
	l := newLab(t)
	l.run("switchyard", "node", "cordon", "server")
	l.submit("killed")
	node := l.allocate("--time=10")
	l.until("a checkpoint in the allocation", func() bool {
		states, _ := filepath.Glob(l.in("state-*"))
		return len(l.nodes()[node].Jobs) == 1 && len(states) > 0
	})
	l.run("switchyard", "node", "resume", "server")
	l.run("scancel", "--signal=KILL", "--full", strings.TrimPrefix(node, "slurm-"))
	l.killAll(node)
	l.until("the job on the server", func() bool { return slices.Contains(l.nodes()["server"].Jobs, "killed") })
	l.finish("killed")
}

// killAll kills what an allocation has started, as Slurm does with proctrack/cgroup. Without control groups, as here,
// Slurm knows its own children alone.
func (l *lab) killAll(node string) {
	l.t.Helper()
	const variable = "\x00SLURM_JOB_ID="
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		words, _ := os.ReadFile(folder + "/cmdline")
		environ, _ := os.ReadFile(folder + "/environ")
		_, job, known := strings.Cut("\x00"+string(environ), variable)
		job, _, _ = strings.Cut(job, "\x00")
		here := known && "slurm-"+job == node && strings.Contains(string(environ), l.in("allocations")) ||
			!known && strings.Contains(string(words)+string(environ), l.in("allocations/"+node))
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil && here {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// state returns what Slurm says of a job.
func (l *lab) state(id string) string {
	out, _ := l.command("scontrol", "show", "job", id, "--oneliner").Output()
	_, rest, _ := strings.Cut(string(out), "JobState=")
	state, _, _ := strings.Cut(rest, " ")
	return state
}
