package nodeagent

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// outgrewFacts reads the first few facts of a job.
func outgrewFacts(t *testing.T, b *bus.Bus, job train.JobID, count int) []event.Outgrew {
	t.Helper()
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	var reported []event.Outgrew
	err := b.Follow(ctx, event.StreamJobs, []string{event.JobSubject(job, event.FactOutgrew).String()}, 1, func(m bus.Message) {
		body, err := event.Decode[event.Outgrew](m.Data)
		if err != nil {
			t.Error(err)
		}
		if reported = append(reported, body); len(reported) == count {
			stop()
		}
	})
	if err != nil || len(reported) != count {
		t.Fatalf("got %+v, want %d; error %v", reported, count, err)
	}
	return reported
}

// TestCodeThatReportsMoreThanItsShare: each level is published once, and what fits or concerns a whole device is not.
func TestCodeThatReportsMoreThanItsShare(t *testing.T) {
	server := bustest.Start(t)
	b := bustest.Connect(t, server, "test")
	attempts, err := bus.OpenKV[train.Attempt](within(t), b, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	start(t, server.URL(), t.TempDir(), "--device-kind=gpu", "--sim-gpus=2", "--sim-gpu-memory=16")
	n := node(t, b, time.Time{})
	sharing := burn(t)
	sharing.Devices, sharing.Memory = []train.DeviceID{"gpu:1"}, 4*unit.GiB
	if _, err := attempts.Swap(within(t), "j1", sharing, 0); err != nil {
		t.Fatal(err)
	}
	api := "http://" + n.JobAPI + "/attempt/token/v1/jobs/secret/"
	gib := func(g float64) string { return strconv.Itoa(int(g * float64(unit.GiB))) }
	// Exactly its share, then more.
	post(t, http.DefaultClient, api+"steps", `{"step":1,"epoch":0,"steps":1,"step_seconds":0.1,"gpu_memory_bytes":`+gib(4)+`}`)
	post(t, http.DefaultClient, api+"steps", `{"step":2,"epoch":0,"steps":1,"step_seconds":0.1,"gpu_memory_bytes":`+gib(5)+`}`)
	want := event.Outgrew{Attempt: 1, Node: "n1", Device: "gpu:1", Part: 4 * unit.GiB, Used: 5 * unit.GiB, Needs: 5632 * unit.MiB}
	if diff := cmp.Diff([]event.Outgrew{want}, outgrewFacts(t, b, "j1", 1)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// Within the margin nothing new is published; more than the device has counts as the device.
	post(t, http.DefaultClient, api+"steps", `{"step":3,"epoch":0,"steps":1,"step_seconds":0.1,"gpu_memory_bytes":`+gib(5.25)+`}`)
	post(t, http.DefaultClient, api+"epochs", `{"epochs_done":1,"gpu_memory_bytes":`+gib(20)+`}`)
	want.Used, want.Needs = 16*unit.GiB, 16*unit.GiB
	if got := outgrewFacts(t, b, "j1", 2)[1]; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestProcessesThatHoldMoreThanTheirShare are found by the driver, without any report of their code. The co-runner
// holds its own memory.
func TestProcessesThatHoldMoreThanTheirShare(t *testing.T) {
	server := bustest.Start(t)
	b := bustest.Connect(t, server, "test")
	attempts, err := bus.OpenKV[train.Attempt](within(t), b, contract.Attempts)
	if err != nil {
		t.Fatal(err)
	}
	small, large := burn(t), burn(t)
	small.Devices, small.Memory = []train.DeviceID{"gpu:0"}, 512*unit.MiB
	large.Job, large.Devices, large.Memory = "j2", []train.DeviceID{"gpu:1"}, 2*unit.GiB
	for _, a := range []train.Attempt{large, small} {
		if _, err := attempts.Swap(within(t), string(a.Job), a, 0); err != nil {
			t.Fatal(err)
		}
	}
	s := service(t, "--device-kind=gpu", "--meter-interval=100ms")
	// Each has 1 GiB.
	s.gpus = newRack([]string{strconv.Itoa(small.PID), strconv.Itoa(large.PID), strconv.Itoa(os.Getpid())})
	startService(t, server.URL(), t.TempDir(), s)
	want := event.Outgrew{Attempt: 1, Node: "n1", Device: "gpu:0", Part: 512 * unit.MiB, Used: unit.GiB, Needs: 1127 * unit.MiB}
	if got := outgrewFacts(t, b, "j1", 1)[0]; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if last, err := b.LastSequence(within(t), event.StreamJobs); err != nil || last != 1 {
		t.Errorf("%d facts, error %v, want that of j1 alone", last, err)
	}
}

// The known memory of an attempt is the most that its code reported or the driver saw on any of its devices. Other
// attempts and estimates do not count.
func TestTheLargestKnownMemory(t *testing.T) {
	a := train.Attempt{Job: "j", Number: 3, Node: "n", Devices: []train.DeviceID{"gpu:0", "gpu:1"}}
	r := newReservations("n", nil, nil, quiet())
	use := func(attempt int, device train.DeviceID, memory unit.Bytes, guessed bool) event.Use {
		return event.Use{Job: "j", Attempt: attempt, Component: event.ComponentGPU, Device: device, MemoryBytes: memory, Estimated: guessed}
	}
	if got := r.reported(a, unit.GiB); got != unit.GiB {
		t.Errorf("at first %s, want what was reported", got)
	}
	r.measured([]event.Use{use(3, "gpu:0", unit.GiB, false), use(3, "gpu:1", 3*unit.GiB, false), use(3, "gpu:1", 8*unit.GiB, true), use(2, "gpu:0", 4*unit.GiB, false)})
	for _, c := range []struct{ told, want unit.Bytes }{{2 * unit.GiB, 3 * unit.GiB}, {0, 3 * unit.GiB}, {5 * unit.GiB, 5 * unit.GiB}, {unit.GiB, 5 * unit.GiB}} {
		if got := r.reported(a, c.told); got != c.want {
			t.Errorf("got %s: %s, want %s", c.told, got, c.want)
		}
	}
}

// A device may have half a MiB that no job can ask for.
func TestNoJobNeedsMoreThanTheWholeMiBOfADevice(t *testing.T) {
	a := train.Attempt{Job: "j", Number: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Memory: unit.GiB, Phase: train.PhaseRunning}
	r := newReservations("n", func() []train.Attempt { return []train.Attempt{a} }, nil, quiet())
	r.reported(a, 16*unit.GiB)
	for _, found := range r.outgrown([]gpu.Device{{Memory: 16160*unit.MiB + unit.MiB/2}}) {
		if want := 16160 * unit.MiB; found.Needs != want || found.Used != want || found.Needs.MiB() != 16160 {
			t.Errorf("needs %d bytes, uses %d, want %d", found.Needs, found.Used, want)
		}
		return
	}
	t.Error("nothing is published")
}

func TestAFailedPublicationIsRetried(t *testing.T) {
	a := train.Attempt{Job: "j", Number: 3, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Memory: unit.GiB, Phase: train.PhaseRunning}
	ctx, stop := context.WithCancel(within(t))
	tries := 0
	r := newReservations("n", func() []train.Attempt { return []train.Attempt{a} }, func(_ context.Context, facts ...event.Fact) error {
		if tries++; tries == 1 {
			return bus.ErrAway
		}
		if key := "job/j/attempt/3/outgrew/gpu:0/2253"; facts[0].Key != key {
			t.Errorf("key %s, want %s", facts[0].Key, key)
		}
		stop()
		return nil
	}, quiet())
	r.reported(a, 2*unit.GiB)
	if err := r.run(ctx, func() []gpu.Device { return []gpu.Device{{Index: 0, Memory: 8 * unit.GiB}} }); err != nil || tries != 2 {
		t.Errorf("%d tries, error %v", tries, err)
	}
}
