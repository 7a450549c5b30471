package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/nvml"
)

//go:embed load/load.c
var loadSource []byte

//go:embed train_ddp.py
var trainSource []byte

// bench is the machine and the installation that runs on it at the moment.
type bench struct {
	settings
	library *nvml.Library
	devices []gpu.Device
	// dir has the files of all installations; loader is the program that keeps a GPU busy, python an interpreter with
	// PyTorch that sees a GPU, empty without one.
	dir, loader, python string
	server              *exec.Cmd
	data                string
	number              int
	// submitted are the jobs of the installation.
	submitted []string
}

// open looks what the machine has.
func open(ctx context.Context, s settings, library *nvml.Library, devices []gpu.Device) (*bench, error) {
	bin, err := filepath.Abs(s.bin)
	if err != nil {
		return nil, fmt.Errorf("find the programs: %w", err)
	}
	s.bin = bin
	dir, err := os.MkdirTemp("", "switchyard-gpu-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	b := &bench{settings: s, library: library, devices: devices, dir: dir, loader: filepath.Join(dir, "load")}
	for _, d := range devices {
		if n := len(b.processes(d)); n > 0 && !s.used {
			b.close(ctx)
			return nil, fmt.Errorf("%d programs use %s: run this on an idle machine, or with -used", n, d.ID())
		}
	}
	if err := b.compile(ctx); err != nil {
		b.close(ctx)
		return nil, err
	}
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(ctx, name, "-c", "import torch; assert torch.cuda.is_available()").Run() == nil {
			b.python = name
			break
		}
	}
	return b, nil
}

// compile makes the program that keeps a GPU busy.
func (b *bench) compile(ctx context.Context) error {
	source := filepath.Join(b.dir, "load.c")
	if err := errors.Join(os.WriteFile(source, loadSource, 0o600), os.WriteFile(filepath.Join(b.dir, "train_ddp.py"), trainSource, 0o600)); err != nil {
		return fmt.Errorf("write the programs: %w", err)
	}
	cc := cmp.Or(os.Getenv("CC"), "cc")
	if out, err := exec.CommandContext(ctx, cc, "-O1", "-o", b.loader, source, "-ldl").CombinedOutput(); err != nil {
		return fmt.Errorf("compile load.c: %w: %s", err, out)
	}
	return nil
}

func (b *bench) close(ctx context.Context) {
	b.stop(ctx)
	_ = os.RemoveAll(b.dir)
}

// environ is the environment of the installation and its commands.
func (b *bench) environ(more ...string) []string {
	env := append(os.Environ(), "SWITCHYARD_CONTEXT="+filepath.Join(b.data, "context.json"), "PATH="+b.bin+":"+os.Getenv("PATH"))
	if os.Getenv("SWITCHYARD_JOB_ENVIRONMENT") == "" {
		env = append(env, "SWITCHYARD_JOB_ENVIRONMENT=LD_LIBRARY_PATH,PYTHONPATH")
	}
	return append(env, more...)
}

const (
	// startTimeout is how long an installation may take to start, and jobTimeout how long a job may take to reach a
	// state.
	startTimeout = time.Minute
	jobTimeout   = 3 * time.Minute
	lookInterval = 200 * time.Millisecond
)

// start starts an installation of its own. Words with a = are variables, the others flags.
func (b *bench) start(ctx context.Context, words ...string) error {
	b.number++
	b.data = filepath.Join(b.dir, fmt.Sprintf("yard%d", b.number))
	return b.startAgain(ctx, words...)
}

// startAgain starts the same installation.
func (b *bench) startAgain(ctx context.Context, words ...string) error {
	args := []string{"up", "--data-dir", filepath.Join(b.data, "data"), "--port", "0", "--http", "127.0.0.1:0", "--device-kind", "gpu", "--allow-root", b.dir, "--allow-root-jobs"}
	variables := []string{"SWITCHYARD_METER_INTERVAL=200ms", "SWITCHYARD_WEB_LISTEN="}
	for _, w := range words {
		if strings.HasPrefix(w, "SWITCHYARD_") {
			variables = append(variables, w)
			continue
		}
		args = append(args, w)
	}
	if err := os.MkdirAll(b.data, 0o750); err != nil {
		return fmt.Errorf("make the folder of an installation: %w", err)
	}
	_ = os.Remove(filepath.Join(b.data, "context.json"))
	log, err := os.OpenFile(filepath.Join(b.data, "up.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(b.bin, "switchyard"), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = b.environ(variables...), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start switchyard up: %w", err)
	}
	b.server = cmd
	return b.wait(ctx, startTimeout, "the installation starts", func() bool {
		var nodes []struct{ Devices int }
		out, err := b.command(ctx, "node", "list", "-o", "json")
		return err == nil && json.Unmarshal(out, &nodes) == nil && len(nodes) == 1 && nodes[0].Devices == len(b.devices)
	})
}

// stop ends the jobs that a check has left, and the installation in order: jobs outlive it.
func (b *bench) stop(ctx context.Context) {
	if b.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	for _, id := range b.submitted {
		if j := b.describe(ctx, id); j.Job.ID != "" && !ended(j) {
			_ = b.cancel(ctx, id)
		}
	}
	b.submitted = nil
	_ = b.server.Process.Signal(syscall.SIGTERM)
	_ = b.server.Wait()
	b.server = nil
}

// kill ends the whole installation at once, the agent with it.
func (b *bench) kill() {
	_ = syscall.Kill(-b.server.Process.Pid, syscall.SIGKILL)
	_ = b.server.Wait()
	b.server = nil
}

// log returns the end of the installation's log.
func (b *bench) log() string {
	text, _ := os.ReadFile(filepath.Join(b.data, "up.log"))
	const most = 300
	return oneLine(string(text[max(0, len(text)-most):]))
}

// command runs the command line.
func (b *bench) command(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "switchyard"), args...)
	cmd.Env = b.environ()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("switchyard %s: %w: %s", args[0], err, errs.String())
	}
	return out, nil
}

// wait waits until something is so.
func (b *bench) wait(ctx context.Context, limit time.Duration, what string, so func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for range tick.Every(ctx, lookInterval) {
		if so() {
			return nil
		}
	}
	return fmt.Errorf("not seen within %s: %s; log: %s", limit, what, b.log())
}

// job is a job of this test, as `describe` shows it.
type job struct {
	Job     train.Job
	Attempt struct {
		Number      int
		Devices     []train.DeviceID
		Enforcement train.Enforcement
	}
	Account *train.Account
}

// submit submits a job; keys are those of a job file.
func (b *bench) submit(ctx context.Context, id string, keys map[string]any) error {
	keys["name"], keys["work_dir"] = id, b.dir
	for key, value := range map[string]any{"batch_size": 32, "training_set_size": 320, "max_epochs": 1} {
		if _, given := keys[key]; !given {
			keys[key] = value
		}
	}
	text, err := json.Marshal(keys) // which is YAML as well
	if err != nil {
		return fmt.Errorf("encode job %s: %w", id, err)
	}
	path := filepath.Join(b.data, id+".yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write job %s: %w", id, err)
	}
	b.submitted = append(b.submitted, id)
	_, err = b.command(ctx, "submit", path, "--id", id)
	return err
}

func (b *bench) describe(ctx context.Context, id string) (j job) {
	if out, err := b.command(ctx, "describe", id, "-o", "json"); err == nil {
		_ = json.Unmarshal(out, &j)
	}
	return j
}

// reach waits until a job is so, and returns it.
func (b *bench) reach(ctx context.Context, id, what string, so func(job) bool) (j job, err error) {
	err = b.wait(ctx, jobTimeout, id+": "+what, func() bool {
		j = b.describe(ctx, id)
		return so(j)
	})
	if err != nil {
		return j, fmt.Errorf("job %s is %s (%s): %w", id, j.Job.State, j.Job.Message, err)
	}
	return j, nil
}

// runs reports whether a job has devices; until its first epoch it is profiled.
func runs(j job) bool {
	return j.Job.State == train.StateRunning || j.Job.State == train.StateProfiling
}

func ended(j job) bool { return j.Job.State.Terminal() }

// output returns what a job has printed.
func (b *bench) output(ctx context.Context, id string) string {
	out, _ := b.command(ctx, "logs", id)
	return string(out)
}

// cancel ends jobs and waits until they are gone.
func (b *bench) cancel(ctx context.Context, ids ...string) error {
	var errs []error
	for _, id := range ids {
		if !ended(b.describe(ctx, id)) {
			_, err := b.command(ctx, "cancel", id)
			errs = append(errs, err)
		}
		_, err := b.reach(ctx, id, "ends", ended)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// values returns what load.c has printed after a word, one a line.
func values(output, word string) []string {
	var found []string
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == word {
			found = append(found, fields[1])
		}
	}
	return found
}

// device returns a device by its id.
func (b *bench) device(id train.DeviceID) gpu.Device {
	if i := slices.IndexFunc(b.devices, func(d gpu.Device) bool { return d.ID() == id }); i >= 0 {
		return b.devices[i]
	}
	return gpu.Device{}
}
