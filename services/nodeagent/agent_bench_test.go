package nodeagent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// asAgent is the first argument with which this test program becomes the agent of a node with GPUs; the following
// arguments are their processes. With flagsOnly instead, the flags decide.
const (
	asAgent   = "as-the-agent"
	flagsOnly = "-"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asAgent {
		os.Exit(run.Main(os.Args[3:], nil, os.Stderr, settings.NodeAgentSection, func(a *settings.All) run.Service {
			s := New(a.NodeAgent)
			if os.Args[2] != flagsOnly {
				s.gpus = newRack(strings.Split(os.Args[2], ","))
			}
			return s
		}))
	}
	os.Exit(m.Run())
}

const benchGPUs, benchProcesses = 8, 64

// rack is simulated GPUs that report energy and processes, as NVML does.
type rack struct {
	pids []int
	at   time.Time
}

func newRack(pids []string) *rack {
	r := &rack{at: time.Now()}
	for _, word := range pids {
		pid, _ := strconv.Atoi(word)
		r.pids = append(r.pids, pid)
	}
	return r
}

func (r *rack) Devices() ([]gpu.Device, error) {
	devices := make([]gpu.Device, benchGPUs)
	for i := range devices {
		devices[i] = gpu.Device{Index: i, UUID: fmt.Sprintf("GPU-%d", i), Model: "simulated", Memory: 80 * unit.GiB}
	}
	return devices, nil
}

func (r *rack) Sample(index int) (gpu.Sample, error) {
	s := gpu.Sample{Energy: (400 * unit.Watt).Over(time.Since(r.at)), HasEnergy: true, Board: event.Board{LimitWatts: 700}}
	for i := index; i < len(r.pids); i += benchGPUs {
		s.Processes = append(s.Processes, gpu.Process{PID: r.pids[i], Utilisation: 0.1, LastWork: time.Now(), Context: true, Memory: unit.GiB})
	}
	return s, nil
}

// occupy starts idle processes, each the attempt of its own job on one of the GPUs.
func occupy(b *testing.B, conn *bus.Bus) []string {
	b.Helper()
	attempts, err := bus.OpenKV[train.Attempt](b.Context(), conn, contract.Attempts)
	if err != nil {
		b.Fatal(err)
	}
	boot, err := proc.Root("/proc").BootID()
	if err != nil {
		b.Fatal(err)
	}
	var pids []string
	for i := range benchProcesses {
		child := exec.Command("sleep", "600")
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := child.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
		pids = append(pids, strconv.Itoa(child.Process.Pid))
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child.Process.Pid))
		if err != nil {
			b.Fatal(err)
		}
		s, err := proc.ParseStat(line)
		if err != nil {
			b.Fatal(err)
		}
		a := train.Attempt{
			Job: train.JobID(fmt.Sprintf("job-%d", i)), Number: 1, Node: "bench", Phase: train.PhaseRunning, PID: s.PID, PIDStart: s.Start, BootID: boot,
			Devices: []train.DeviceID{train.DeviceID(fmt.Sprintf("gpu:%d", i%benchGPUs))},
		}
		if _, err := attempts.Modify(b.Context(), string(a.Job), func(known *train.Attempt) (bool, error) { *known = a; return true, nil }); err != nil {
			b.Fatal(err)
		}
	}
	return pids
}

// BenchmarkAgent runs the agent as its own process, at one interval a second, on a node with 8 GPUs and 64 processes
// on them, and reports its cost: the share of one core and the memory. One round is 20 intervals.
func BenchmarkAgent(b *testing.B) {
	const intervals = 20
	conn := bustest.Connect(b, bustest.Start(b), "bench")
	pids := occupy(b, conn)
	child := exec.Command(os.Args[0], asAgent, strings.Join(pids, ","), "--nats", conn.URL(), "--http", "127.0.0.1:0", "--log-level", "error",
		"--data-dir", b.TempDir(), "--node", "bench")
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })

	ctx, stop := context.WithTimeout(b.Context(), 10*time.Minute)
	defer stop()
	seen, complete := 0, 0
	var began, spent proc.Ticks
	var from, to time.Time
	err := conn.Follow(ctx, event.StreamSamples, []string{"yard.energy.bench.measured.v1"}, 1, func(m bus.Message) {
		body, err := event.Decode[event.Measured](m.Data)
		if err != nil {
			b.Error(err)
		}
		if len(body.Users) == 2*benchProcesses && len(body.Meters) >= benchGPUs+1 {
			complete++
		}
		if seen++; seen == 3 { // it has started
			began, from = ticksOf(b, child.Process.Pid), body.To
		}
		if seen == 3+intervals*b.N {
			spent, to = ticksOf(b, child.Process.Pid)-began, body.To
			stop()
		}
	})
	if err != nil || complete < intervals*b.N {
		b.Fatalf("%d intervals, %d of them complete, error %v", seen, complete, err)
	}
	b.ReportMetric(100*spent.Seconds()/to.Sub(from).Seconds(), "%core")
	b.ReportMetric(residentMiB(b, child.Process.Pid), "MiB")
}

func ticksOf(b *testing.B, pid int) proc.Ticks {
	b.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	s, err := proc.ParseStat(line)
	if err != nil {
		b.Fatal(err)
	}
	return s.Own
}

// residentMiB returns the resident memory of a process.
func residentMiB(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib / 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
