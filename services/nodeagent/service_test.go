package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// service makes an agent from flags.
func service(t *testing.T, args ...string) *Service {
	t.Helper()
	s, err := configured(args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// configured makes an agent from settings, and gives what is wrong with them.
func configured(args ...string) (*Service, error) {
	all, err := settings.Of(args...)
	s := New(all.NodeAgent)
	return s, errors.Join(err, s.Validate(all.Common))
}

// start runs an agent as its process would; the function stops it.
func start(t *testing.T, url, dir string, args ...string) (stop func()) {
	t.Helper()
	return startService(t, url, dir, service(t, append([]string{"--device-kind=cpu", "--cpu-slots=3", "--meter-interval=100ms"}, args...)...))
}

func startService(t *testing.T, url, dir string, s *Service) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	common := run.Common{NATS: url, HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: dir, Node: "n1"}
	if err := s.Validate(common); err != nil {
		t.Fatal(err)
	}
	var running conc.WaitGroup
	running.Go(func() {
		if err := run.Together(ctx, common, io.Discard, func(net.Addr) {}, s); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// node waits for an entry of the agent that is newer than a time.
func node(t *testing.T, b *bus.Bus, after time.Time) train.Node {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	nodes, err := bus.OpenKV(ctx, b, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	var n train.Node
	err = nodes.Watch(ctx, func(e bus.Entry[train.Node], _ bool) {
		if e.Value.SeenAt.After(after) {
			n = e.Value
			cancel()
		}
	}, nil)
	if err != nil || n.ID != "n1" {
		t.Fatalf("%+v, error %v", n, err)
	}
	return n
}

func post(t *testing.T, client *http.Client, url, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(within(t), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%d %s, error %v", response.StatusCode, text, err)
	}
}

// burn starts a supervisor whose child uses the processor, and returns its attempt.
func burn(t *testing.T) train.Attempt {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	const root = proc.Root("/proc")
	all, err := root.Processes()
	if err != nil {
		t.Fatal(err)
	}
	boot, err := root.BootID()
	if err != nil {
		t.Fatal(err)
	}
	return train.Attempt{
		Job: "j1", Number: 1, Node: "n1", Phase: train.PhaseRunning, Devices: []train.DeviceID{"cpu:0"}, BootID: boot,
		CapabilityHash: train.Hash("secret"), TokenHash: train.Hash("token"), PID: cmd.Process.Pid, PIDStart: all[cmd.Process.Pid].Start,
	}
}

func TestTheWholeAgentOverARestart(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t)
	b := bustest.Connect(t, server, "test")
	attempts, err := bus.OpenKV[train.Attempt](within(t), b, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	stop := start(t, server.URL(), dir)
	first := node(t, b, time.Time{})
	if len(first.Devices) != 3 || first.Cores < 1 || first.BootID == "" || len(first.Meters) == 0 {
		t.Errorf("%+v", first)
	}
	if _, err := attempts.Swap(within(t), "j1", burn(t), 0); err != nil {
		t.Fatal(err)
	}
	base := "/attempt/token/v1/jobs/secret/epochs"
	post(t, http.DefaultClient, "http://"+first.JobAPI+base, `{"epochs_done":1}`)
	checkIntervals(t, b, 1)
	stop()
	stopped := time.Now()
	start(t, server.URL(), dir)
	second := node(t, b, stopped)
	if second.JobAPI != first.JobAPI || second.JobAPISocket != first.JobAPISocket {
		t.Errorf("after the restart at %s and %s, before at %s and %s", second.JobAPI, second.JobAPISocket, first.JobAPI, first.JobAPISocket)
	}
	socket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", second.JobAPISocket)
	}}}
	defer socket.CloseIdleConnections()
	post(t, socket, "http://agent"+base, `{"epochs_done":2}`)
	if info, err := os.Stat(second.JobAPISocket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("socket %v, error %v", info, err)
	}
	if last, err := b.LastSequence(within(t), event.StreamJobs); err != nil || last != 2 {
		t.Errorf("%d facts, error %v", last, err)
	}
	checkIntervals(t, b, 2)
}

// checkIntervals reads intervals until this many agents have reported the process that burns.
func checkIntervals(t *testing.T, b *bus.Bus, agents int) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	next, worked, last := map[string]uint64{}, map[string]bool{}, time.Time{}
	err := b.Follow(ctx, event.StreamSamples, []string{"yard.energy.n1.measured.v1"}, 1, func(m bus.Message) {
		got, err := event.Decode[event.Measured](m.Data)
		if err != nil {
			t.Error(err)
		}
		if next[got.BootID]++; next[got.BootID] != got.Sequence {
			t.Errorf("interval %d of %s, want number %d", got.Sequence, got.BootID, next[got.BootID])
		}
		if got.From.Before(last) {
			t.Errorf("interval from %s overlaps the one to %s", got.From, last)
		}
		last = got.To
		for _, u := range got.Users {
			if u.Job == "j1" && u.Work > 0 {
				worked[got.BootID] = true
			}
		}
		if len(worked) == agents {
			cancel()
		}
	})
	if err != nil || len(worked) != agents {
		t.Errorf("agents that saw the job work: %v, error %v", worked, err)
	}
}

func TestThePortOfTheJobAPI(t *testing.T) {
	dir := t.TempDir()
	listen := func(address string) net.Listener {
		t.Helper()
		l, err := listenTCP(within(t), dir, address, quiet())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := listen(settings.AnyLocalPort)
	taken := listen(settings.AnyLocalPort) // the port is in use: another one, which is remembered instead
	if taken.Addr().String() == first.Addr().String() {
		t.Fatal("two listeners on one port")
	}
	_ = first.Close()
	_ = taken.Close()
	third := listen(settings.AnyLocalPort)
	defer third.Close()
	if third.Addr().String() != taken.Addr().String() {
		t.Errorf("at %s, want %s", third.Addr(), taken.Addr())
	}
	if l, err := listenTCP(within(t), dir, third.Addr().String(), quiet()); err == nil {
		_ = l.Close()
		t.Error("a port that was asked for by name and is taken is an error")
	}
	for _, text := range []string{"", "x", "0", "70000", "-1"} {
		path := filepath.Join(t.TempDir(), portFile)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := rememberedPort(path); got != "" {
			t.Errorf("%q is no port, got %q", text, got)
		}
	}
}

func TestSocketPath(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp")
	short, err := socketPath("/data/nodeagent")
	if err != nil || short != "/data/nodeagent/job-api/job.sock" {
		t.Errorf("%s, error %v", short, err)
	}
	tmp, err := os.MkdirTemp("/tmp", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	t.Setenv("TMPDIR", tmp)
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	path, err := socketPath(long)
	if err != nil || len(path) > longestSocketPath || !strings.HasPrefix(path, tmp) {
		t.Fatalf("%s, error %v", path, err)
	}
	if again, err := socketPath(long); err != nil || again != path {
		t.Errorf("%s, error %v: want the same for the same folder", again, err)
	}
	// A socket that a killed process left behind is replaced.
	for range 2 {
		l, err := listenUnix(within(t), path)
		if err != nil {
			t.Fatal(err)
		}
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
		_ = l.Close()
	}
	// A folder that others may use is refused.
	if err := os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755); err != nil {
		t.Fatal(err)
	}
	if p, err := socketPath(long); err == nil {
		t.Errorf("%s in a folder that everybody may enter", p)
	}
}

func TestValidate(t *testing.T) {
	if err := service(t).Validate(run.Common{}); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for _, c := range []struct{ flag, words string }{
		{"--job-api=0.0.0.0:80", "loopback"},
		{"--job-api=localhost:80", "loopback"},
		{"--job-api=127.0.0.1", "loopback"},
		{"--job-api=127.0.0.1:http", "port"},
		{"--kubernetes-node=n1 --job-api=0.0.0.0:80", "address of this node"},
		{"--kubernetes-node=n1 --job-api=n1:80", "address of this node"},
		{"--kubernetes-node=n1 --job-api=10.0.0.1:http", "port"},
		{"--kubernetes-node=n/1", "name of a node"},
		{"--kubernetes-node=n1 --pod-logs=logs", "absolute"},
		{"--kubernetes-node=n1 --kubelet-root=", "absolute"},
		{"--kubernetes-node=n1 --device-plugin-dir=x", "absolute"},
		{"--kubernetes-node=n1 --node-labels=x", "absolute"},
		{"--kubernetes-node=n1 --pod-log-limit=0", "1 to"},
		{"--kubernetes-node=n1 --pod-namespace=", "namespace"},
		{"--sim-gpus=-1", "0 to"},
		{"--label=tier=fast --label=-x=y", "-x=y: want letters"},
		{"--sim-gpu-memory=0", "1 to"},
		{"--device-kind=tpu", "auto, gpu or cpu"},
		{"--cpu-slots=-1", "0 to"},
		{"--cpu-slots=5000", "0 to"},
		{"--meter-interval=1ms", "50ms to 1m0s"},
		{"--meter-interval=2m", "50ms to 1m0s"},
		{"--model-idle-watts=-1", "--model-idle-watts"},
		{"--model-core-watts=NaN", "--model-core-watts"},
	} {
		if _, err := configured(strings.Fields(c.flag)...); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", c.flag, err, c.words)
		}
	}
	inCluster := service(t, "--kubernetes-node=gpu-7.example", "--job-api=10.0.0.1:7480")
	if err := inCluster.Validate(run.Common{}); err != nil {
		t.Errorf("the node's own address in a cluster: %v", err)
	}
	if err := inCluster.Validate(run.Common{Node: "n2"}); err == nil || !strings.Contains(err.Error(), "gpu-7-example-") {
		t.Errorf("another id than Kubernetes gives the node: %v", err)
	}
	_, all := configured("--job-api=x", "--cpu-slots=-1")
	if n := strings.Count(fmt.Sprint(all), "--"); n != 2 {
		t.Errorf("%v: want both at once", all)
	}
}

// TestTheNodeDescribesTheEnforcement: with NVIDIA's daemon it is the daemon. Only the control program is a fake.
func TestTheNodeDescribesTheEnforcement(t *testing.T) {
	bin, pipes := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "nvidia-cuda-mps-control"), []byte("#!/bin/sh\nread command && [ \"$command\" = get_server_list ]\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		pipes string
		want  train.Enforcement
	}{{pipes, train.EnforcedByMPS}, {filepath.Join(pipes, "none"), train.EnforcedByAdvice}} {
		server := bustest.Start(t)
		s := service(t, "--device-kind=gpu", "--mps-pipe-directory="+c.pipes)
		s.gpus = newRack(nil)
		stop := startService(t, server.URL(), t.TempDir(), s)
		n := node(t, bustest.Connect(t, server, "test"), time.Time{})
		if len(n.Devices) != benchGPUs || n.Devices[0].Enforcement != c.want || (n.MPSDir == pipes) != (c.want == train.EnforcedByMPS) {
			t.Errorf("%+v with pipes in %q, want %s", n.Devices, n.MPSDir, c.want)
		}
		stop()
	}
}
