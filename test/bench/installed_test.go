package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// BenchmarkInstalled is what `switchyard up`, the program that people run, costs with SCALE_JOBS queued jobs (10,000):
// memory, disk, processor time while nothing happens and for lists of jobs, and how long it takes after a kill until it
// is ready again.
func BenchmarkInstalled(b *testing.B) {
	jobs, err := strconv.Atoi(cmp.Or(os.Getenv("SCALE_JOBS"), "10000"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		i := install(b)
		i.start()
		i.queue(jobs)
		b.ReportMetric(i.memoryMiB("VmHWM"), "up-peak-MiB")
		for name, words := range map[string][]string{"all": {"ps"}, "tenth": {"ps", "--project", "p3"}} {
			client, server := i.listing(words...)
			b.ReportMetric(1000*client, "ps-"+name+"-client-cpu-ms")
			b.ReportMetric(1000*server, "ps-"+name+"-server-cpu-ms")
		}
		tick.Pause(b.Context(), settled)
		const watched = 30 * time.Second
		before := i.usedSeconds()
		tick.Pause(b.Context(), watched)
		b.ReportMetric(100*(i.usedSeconds()-before)/watched.Seconds(), "idle-cpu-%")
		b.ReportMetric(i.memoryMiB("VmRSS"), "up-MiB")
		b.ReportMetric(i.memoryMiB("RssAnon"), "up-without-file-MiB") // the kernel can drop the rest
		b.ReportMetric(i.storedBytes()/(1<<20), "bus-disk-MiB")
		i.kill()
		began := time.Now()
		i.start()
		b.ReportMetric(time.Since(began).Seconds(), "ready-after-kill-s")
		b.ReportMetric(i.usedSeconds(), "ready-after-kill-cpu-s")
		tick.Pause(b.Context(), settled)
		b.ReportMetric(i.memoryMiB("VmRSS"), "up-after-kill-MiB")
		b.ReportMetric(0, "ns/op")
	}
}

// installed is an installation of its own in a new folder, and its running `switchyard up`.
type installed struct {
	b        *testing.B
	programs string
	dir      string
	up       *exec.Cmd
	context  installation.Context
}

func install(b *testing.B) *installed {
	i := &installed{b: b, programs: b.TempDir(), dir: filepath.Join(b.TempDir(), "data")}
	build := exec.CommandContext(b.Context(), "go", "build", "-ldflags", "-s -w", "-o", i.programs, "../../cmd/switchyard", "../../cmd/switchyard-server", "../../cmd/switchyard-supervisor")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	b.Cleanup(i.kill)
	return i
}

// keys is the folder of the installation's keys.
func (i *installed) keys() identity.Keys { return identity.KeysOf(i.dir) }

func (i *installed) command(ctx context.Context, words ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(i.programs, "switchyard"), words...)
	cmd.Env = append(os.Environ(), "SWITCHYARD_CONTEXT="+filepath.Join(i.dir, installation.ContextName))
	return cmd
}

// start returns when everything is ready.
func (i *installed) start() {
	i.b.Helper()
	_ = os.Remove(filepath.Join(i.dir, installation.ContextName)) // that of the process before
	i.up = i.command(context.WithoutCancel(i.b.Context()), "up", "--data-dir", i.dir, "--port", "0", "--device-kind", "cpu", "--cpu-slots", "2")
	if err := i.up.Start(); err != nil {
		i.b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(i.b.Context(), 5*time.Minute)
	defer cancel()
	for range tick.Every(ctx, 20*time.Millisecond) {
		if i.ready(ctx) {
			return
		}
	}
	i.b.Fatal("not ready in 5 min")
}

func (i *installed) ready(ctx context.Context) bool {
	var err error
	if i.context, err = installation.ReadContext(filepath.Join(i.dir, installation.ContextName)); err != nil {
		return false
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, i.context.HTTP+"/readyz", http.NoBody)
	if err != nil {
		i.b.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// connect connects as the command line does, until the benchmark ends.
func (i *installed) connect() *bus.Bus {
	i.b.Helper()
	conn, err := bus.Connect(i.b.Context(), bus.Config{URL: i.context.NATS, Keys: i.context.Keys, Name: "cli"})
	if err != nil {
		i.b.Fatal(err)
	}
	i.b.Cleanup(conn.Close)
	return conn
}

func (i *installed) kill() {
	if i.up != nil {
		_ = i.up.Process.Kill()
		_ = i.up.Wait()
		i.up = nil
	}
}

// queue submits jobs, a tenth of them to each of ten projects, and returns when they are admitted and planned. The ones
// that run end when the folder is removed.
func (i *installed) queue(jobs int) {
	i.b.Helper()
	conn := i.connect()
	submitAll(i.b, conn, jobs, func(n int) train.Spec {
		return train.Spec{Name: "long", Project: fmt.Sprintf("p%d", n%10), Command: untilRemoved(i.dir)}
	})
	for range tick.Every(i.b.Context(), time.Second) {
		pending, err := conn.Pending(i.b.Context(), event.StreamJobs, "admission")
		if err != nil {
			i.b.Fatal(err)
		}
		if pending == 0 {
			return
		}
	}
}

// listing returns the processor seconds of a list of jobs, the median of five: of the client and of `up`, which does
// what it always does meanwhile.
func (i *installed) listing(words ...string) (client, server float64) {
	i.b.Helper()
	var clients, servers []float64
	for range 5 {
		before := i.usedSeconds()
		cmd := i.command(i.b.Context(), words...)
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
		if err := cmd.Run(); err != nil {
			i.b.Fatalf("%s: %v", words, err)
		}
		clients = append(clients, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
		servers = append(servers, i.usedSeconds()-before)
	}
	slices.Sort(clients)
	slices.Sort(servers)
	return clients[len(clients)/2], servers[len(servers)/2]
}

// usedSeconds is the processor time of `up` without its children.
func (i *installed) usedSeconds() float64 {
	i.b.Helper()
	s, err := proc.Root("/proc").Process(i.up.Process.Pid)
	if err != nil {
		i.b.Fatal(err)
	}
	return s.Own.Seconds()
}

// settled is how long after a burst of work `up` has given the memory back that it left.
const settled = 45 * time.Second

// memoryMiB is the memory of `up` without its children: what is resident, or was at most.
func (i *installed) memoryMiB(name string) float64 {
	i.b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.up.Process.Pid))
	if err != nil {
		i.b.Fatal(err)
	}
	kib := 0.0
	_, value, _ := strings.Cut(string(text), name+":")
	if _, err := fmt.Sscan(value, &kib); err != nil {
		i.b.Fatalf("%s: %v", name, err)
	}
	return kib / 1024
}

// storedBytes is the size of the bus on disk.
func (i *installed) storedBytes() (sum float64) {
	i.b.Helper()
	err := filepath.WalkDir(filepath.Join(i.dir, "bus"), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if info, err := entry.Info(); err == nil { // else it was removed meanwhile
			sum += float64(info.Size())
		}
		return nil
	})
	if err != nil {
		i.b.Fatal(err)
	}
	return sum
}
