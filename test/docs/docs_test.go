package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/test/programs"
)

const root = "../.."

// A page is run in a shell of its own, in a copy of the tree, block after block as its reader would.
type page struct {
	path string
	// before is what the page takes its reader to have.
	before string
	// after must hold when all blocks were run.
	after string
}

// running starts a scheduler as the README does.
const running = "switchyard up --allow-root $PWD >$HOME/up.log 2>&1 &\n" +
	"until switchyard ps >/dev/null 2>&1; do sleep 0.2; done\n"

// ended waits for all jobs, and fails if one failed; a search cancels its worse trials.
const ended = `switchyard wait $(switchyard ps -o json | sed -n 's/^ *"id": "\(.*\)",*/\1/p') || test $? = 103`

// loop is a training in a few lines.
const loop = `import switchyard\nwith switchyard.job() as job:\n    for epoch in job.epochs():\n        for batch in job.steps(range(100)): pass\n`

// pages are the README and the pages to which it sends its readers first.
var pages = []page{
	{path: "README.md", after: ended},
	{path: "docs/tutorial.md"},
	{path: "docs/python-client.md", before: running, after: ended},
	{path: "libs/python/README.md", before: "test -x $TORCH\n" + running, after: ended},
	{path: "docs/job-file.md"},
	{path: "docs/your-script.md", before: running + "echo 'print(1)' >train.py"},
	{path: "docs/operations.md", before: "echo 'planner: {policy: switchyard}' >switchyard.yaml\n" + running + "switchyard run true"},
	{path: "docs/templates.md", before: "sed s,[.][.]/[.][.],., examples/jobs/digits.yaml >job.yaml\nprintf '" + loop + "' >train.py\nexport SWITCHYARD_CPU_SLOTS=4\n" + running},
	{path: "docs/sharing.md"},
	{path: "docs/simulator.md", before: "test -d $SWITCHYARD_DATA\n" + running + "switchyard run true"},
	{path: "docs/configuration.md"},
	{path: "docs/network-probes.md"},
	{path: "docs/network.md", before: "cat >yard.yaml <<'E'\nspines: [spine-1, spine-2]\nracks: [leaf-1, leaf-2]\nnodes: [{name: a, rack: leaf-1}, {name: b, rack: leaf-2}]\nE\n" + running},
	{path: "docs/energy.md", before: "test -d $SWITCHYARD_DATA"},
	{path: "docs/tuning.md", before: "test -d $SWITCHYARD_DATA"},
}

// runners has the command that runs a block in another language than shell, by the first line of the block. BLOCK names
// the file with the block.
var runners = map[string]struct{ before, after, run string }{
	// The process is killed in its second epoch: what it had learned by then must not be lost.
	"import switchyard": {
		before: "import os, pathlib, signal\n" +
			"class Loader:\n" +
			"    def __iter__(self):\n" +
			"        for batch in range(3):\n" +
			"            state['steps'] += 1\n" +
			"            if state['steps'] == 5 and not pathlib.Path('killed').exists():\n" +
			"                pathlib.Path('killed').touch()\n" +
			"                os.kill(os.getpid(), signal.SIGKILL)\n" +
			"            yield batch\n" +
			"loader, loss, new = Loader(), 0.5, {'steps': 0}\n",
		after: "assert state['steps'] == 4 * 3, state\n",
		run:   "switchyard run --epochs 4 python3 $BLOCK && test -e killed",
	},
	"from switchyard.client import Yard": {run: "PYTHONPATH=libs/python python3 $BLOCK"},
	"import switchyard, torch": {
		before: "import torch\n" +
			"model = torch.nn.Linear(2, 1)\n" +
			"loader = [(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(8)]\n" +
			"def train(model, x, y): return float((model(x) - y).pow(2).mean())\n" +
			"def evaluate(model): return 0.5\n",
		run: "switchyard run $TORCH $BLOCK",
	},
	"from kubernetesdlprofile import kubeprofiler": {
		before: "loader = range(4)\ndef train(batch): pass\ndef save(folder): pass\n",
		run:    "switchyard run --epochs 2 --batch-size 4 --training-set-size 16 python3 $BLOCK",
	},
	"name: cifar":        {run: "switchyard submit --print-event $BLOCK"},
	"name: resnet-small": {run: "switchyard submit --print-event $BLOCK"},
	"description: Trains the example network":                {run: "switchyard render $BLOCK --set name=mnist"},
	"# yaml-language-server: $schema=switchyard.schema.json": {run: "switchyard config check $BLOCK"},
	"import signal": {after: "import os\nos.kill(os.getpid(), signal.SIGUSR1)\nassert leave\n", run: "python3 $BLOCK"},
	"nodeagent:":    {run: "switchyard config check $BLOCK"},
	"admission:":    {run: "switchyard config check $BLOCK"},
}

// unrun lists the code that is not run, by its first line, with the reason.
var unrun = map[string]string{
	"switchyard-lab workload generate --jobs 500 --from cluster_job_log -o csv > philly.csv": "a trace that its reader has; the tests of lab have one of this form",
	"FROM python:3.12": "an image of the internet; cmd/switchyard/cli/image and test/runas build others",
	"switchyard submit --build -- python3 train.py": "an engine, and that image",
	"[Service]": "a unit of systemd, which starts with the machine",
	"curl -fsSL https://github.com/switchyard-dl/switchyard/releases/latest/download/install.sh | sh   # Linux: all programs; macOS: the command": "the internet; the tests of tools/release run the script, and make e2e-deb the package",
	"sudo install switchyard switchyard-server switchyard-supervisor /usr/local/bin   # root runs them: nobody else may change them":              "changes the machine; test/runas plays it, and make e2e-deb the package",
	"switchyard shell --devices 1 --time-limit 1h": "a person's terminal; test/system has one",
	`"batch_size": 64,`:                            "two keys of a job file, without the others",
	`signal.signal(signal.SIGUSR1, lambda *_: (trainer.save_checkpoint("checkpoints/last.ckpt"), sys.exit(0)))`: "Debian has no Lightning",
	"class Leave(TrainerCallback):":                           "Debian has no transformers",
	"switchyard net topology --live --svg now.svg":            "several nodes that probe each other; test/net runs it",
	"POLLUX=$SWITCHYARD_DATA/pollux SIA=$SWITCHYARD_DATA/sia": "tens of minutes; make bench-sched and the tests of lab/traces run these",
}

// Every block is run or says why it is not, and no row of the tables is idle.
func TestEveryBlockIsKnown(t *testing.T) {
	t.Parallel()
	idle := maps.Clone(unrun)
	for first := range runners {
		idle[first] = ""
	}
	for _, p := range pages {
		for _, b := range p.blocks(t) {
			_, runner := runners[b.first()]
			if delete(idle, b.first()); !runner && unrun[b.first()] == "" && b.language != "sh" && b.language != "text" {
				t.Errorf("%s:%d: `%s`: want a block marked sh (is run) or text (is output), a row in runners, or one in unrun", p.path, b.line, b.first())
			}
		}
	}
	for first := range idle {
		t.Errorf("no block begins with `%s`: remove its row", first)
	}
}

// A user who follows the README line by line, or the tutorial, or the page of the Python client, gets what they say.
// Here the programs are built already, and each page has a reader of its own, with a copy of the tree and no scheduler.
func TestTheReadmeRuns(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "bin")
	if err := errors.Join(
		os.Mkdir(bin, 0o755), programs.Build(bin, programs.All()...), os.Rename(filepath.Join(bin, "gotrainer"), filepath.Join(bin, "switchyard-trainer")),
	); err != nil {
		t.Fatal(err)
	}
	for _, p := range pages[:3] {
		t.Run(p.path, func(t *testing.T) {
			t.Parallel()
			tree := filepath.Join(t.TempDir(), "switchyard")
			for _, folder := range []string{"examples", "libs/python"} {
				if err := os.CopyFS(filepath.Join(tree, folder), os.DirFS(filepath.Join(root, folder))); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(bin, filepath.Join(tree, "bin")); err != nil {
				t.Fatal(err)
			}
			newReader(t, t.TempDir(), tree, "").read(p)
		})
	}
}

// The same in a fresh clone, where `make` builds and shows the demo, and then the pages behind the README.
func TestTheDocsRun(t *testing.T) {
	if os.Getenv("DOCS") == "" {
		t.Skip("DOCS is not set (make test-docs): minutes")
	}
	tree := filepath.Join(t.TempDir(), "switchyard")
	run(t, "git", "clone", "-q", root, tree)
	program, err := exec.LookPath("make")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		t.Run(p.path, func(t *testing.T) {
			if what := p.missing(); what != "" {
				t.Skip(what)
			}
			newReader(t, t.TempDir(), tree, `test "$1" = test || exec `+program+` "$@"`).read(p)
		})
	}
}

// A reader has a home and a copy of the tree.
type reader struct {
	*testing.T
	home, tree string
	environ    []string
}

// newReader returns a reader for whom `make` is a script.
func newReader(t *testing.T, home, tree, script string) reader {
	t.Helper()
	commands := filepath.Join(home, "programs")
	if err := os.Mkdir(commands, 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, "go", "build", "-o", commands+"/", "./nats")
	if err := os.WriteFile(filepath.Join(commands, "make"), []byte("#!/bin/bash\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	port := bustest.FreePort(t)
	r := reader{T: t, home: home, tree: tree, environ: []string{
		"HOME=" + home, "PATH=" + commands + ":" + filepath.Join(tree, "bin") + ":" + os.Getenv("PATH"), "LANG=C.UTF-8",
		fmt.Sprint("SWITCHYARD_PORT=", port),
		"SWITCHYARD_DATA=" + os.Getenv("SWITCHYARD_DATA"), "TORCH=" + torch(),
	}}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOFLAGS"} {
		r.environ = append(r.environ, name+"="+strings.TrimSpace(run(t, "go", "env", name)))
	}
	t.Cleanup(r.killRest)
	return r
}

// read runs a page's blocks one after the other in one shell.
func (r reader) read(p page) {
	r.Helper()
	script := "set -euo pipefail\nshopt -s inherit_errexit\n" + p.before + "\n"
	for i, b := range p.blocks(r.T) {
		if unrun[b.first()] != "" {
			continue
		}
		text, file := b.text, filepath.Join(r.home, fmt.Sprint("block-", i))
		if program, ok := runners[b.first()]; ok {
			if err := os.WriteFile(file, []byte(program.before+b.text+program.after), 0o600); err != nil {
				r.Fatal(err)
			}
			text = program.run + "\n"
		} else if b.language != "sh" {
			continue
		}
		script += fmt.Sprintf("echo '== %s:%d'\nBLOCK=%s\n%s", p.path, b.line, file, text)
	}
	ctx, cancel := context.WithTimeout(r.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script+p.after)
	cmd.Dir, cmd.Env = r.tree, r.environ
	cmd.WaitDelay = time.Second // the scheduler that it leaves behind holds the pipe
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		r.Errorf("%v\n%s\nin the shell\n%s", err, out, script+p.after)
	}
}

// killRest ends whatever still runs of the reader's: the scheduler, jobs and their supervisors.
func (r reader) killRest() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		left := 0
		procs, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, proc := range procs {
			environ, err := os.ReadFile(proc)
			if pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(proc))); err == nil && bytes.Contains(environ, []byte("HOME="+r.home+"\x00")) {
				left++
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if left == 0 {
			return
		}
	}
}

func (p page) blocks(t *testing.T) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, p.path))
	if err != nil {
		t.Fatal(err)
	}
	found, err := blocks(string(text))
	if err != nil {
		t.Fatalf("%s: %v", p.path, err)
	}
	return found
}

// missing says what this machine lacks for a page.
func (p page) missing() string {
	text := p.before
	switch {
	case strings.Contains(text, "$SWITCHYARD_DATA") && os.Getenv("SWITCHYARD_DATA") == "":
		return "SWITCHYARD_DATA does not name the recorded data"
	case strings.Contains(text, "$TORCH") && torch() == "":
		return "python3 has no torch"
	}
	return ""
}

// torch returns the path of a Python that can import PyTorch, or "" if there is none.
func torch() string {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if path, err := exec.LookPath(python); err == nil && exec.Command(path, "-c", "import torch").Run() == nil {
			return path
		}
	}
	return ""
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}
