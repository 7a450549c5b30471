package meter

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

const device = train.DeviceID("gpu:0")

func process(pid int, utilisation float64) gpu.Process {
	return gpu.Process{PID: pid, Utilisation: utilisation, Context: true}
}

func counter(joules float64, on ...gpu.Process) gpu.Sample {
	return gpu.Sample{Energy: unit.Energy(joules * float64(unit.Joule)), HasEnergy: true, Processes: on}
}

// all of these processes live, with no earlier owners
func living(now map[int]runKey) owners {
	o := owners{now: map[int]owned{}, began: func(int) (time.Time, bool) { return time.Time{}, true }}
	for pid, r := range now {
		o.now[pid] = owned{run: r}
	}
	return o
}

func TestGPUMeter(t *testing.T) {
	who := living(map[int]runKey{11: {job: "a"}, 12: {job: "b"}})
	use := func(job train.JobID, work, context float64) event.Use {
		return event.Use{Job: job, Component: "gpu", Device: device, Work: work, ContextSeconds: context}
	}
	const j = unit.Joule
	b := &gpuMeter{}
	for i, c := range []struct {
		name   string
		sample gpu.Sample
		meter  *event.Meter
		uses   []event.Use
	}{
		{"first", counter(1000), nil, nil},
		{"empty: all idle, and 60 W is what it draws bare", counter(1120), &event.Meter{Energy: 120 * j, Idle: 120 * j}, nil},
		{"a comes", counter(1420, process(11, 0.5)), &event.Meter{Energy: 300 * j, Idle: 120 * j}, []event.Use{use("a", 1, 1)}},
		{
			"b comes, too", counter(1920, process(11, 0.5), process(12, 0.25)), &event.Meter{Energy: 500 * j, Idle: 120 * j},
			[]event.Use{use("a", 1, 2), use("b", 0.5, 1)},
		},
		{
			"b left and another process works", counter(2420, process(11, 0.5), process(99, 0.25)),
			&event.Meter{Energy: 500 * j, Idle: 120 * j, Busy: 1.5, ContextSeconds: 4},
			[]event.Use{use("a", 1, 2), use("b", 0, 1)},
		},
		{
			"the other process leaves, no process works: 200 W with contexts", counter(2820, process(11, 0)),
			&event.Meter{Energy: 400 * j, Idle: 120 * j, Context: 280 * j, ContextSeconds: 3},
			[]event.Use{use("a", 0, 2)},
		},
		{ // 100 W with a context that does nothing: 40 W belong to the context
			"a waits", counter(3020, process(11, 0)), &event.Meter{Energy: 200 * j, Idle: 120 * j, Context: 80 * j}, []event.Use{use("a", 0, 2)},
		},
		{"less than bare", counter(3120, process(11, 0)), &event.Meter{Energy: 100 * j, Idle: 100 * j}, []event.Use{use("a", 0, 2)}},
		{"the driver was loaded again", counter(20), &event.Meter{Energy: -3100 * j}, []event.Use{use("a", 0, 1)}},
	} {
		on, occupants := useOf(device, c.sample, b.occupants, who, nil)
		b.occupants = occupants
		got, ok := b.read(device, c.sample, 2*time.Second, on)
		if ok != (c.meter != nil) {
			t.Fatalf("reading %d, %s: ok %v", i, c.name, ok)
		}
		if !ok {
			continue
		}
		c.meter.Component, c.meter.Device, c.meter.Method, c.meter.Capacity = "gpu", device, "nvml_counter", 2
		if diff := cmp.Diff(*c.meter, got, cmpopts.IgnoreFields(event.Meter{}, "Board")); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, diff)
		}
		if diff := cmp.Diff(c.uses, on.uses(device, 2*time.Second)); diff != "" {
			t.Errorf("uses: %s (-want +got)\n%s", c.name, diff)
		}
	}
}

func TestGPUMeterWithoutACounter(t *testing.T) {
	b := &gpuMeter{}
	watts := func(w int64) gpu.Sample { return gpu.Sample{Power: unit.Power(w) * unit.Watt, HasPower: true} }
	b.read(device, watts(100), time.Second, deviceUse{})
	got, ok := b.read(device, watts(200), 2*time.Second, deviceUse{})
	if !ok || got.Method != "nvml_power" || got.Energy != 300*unit.Joule {
		t.Errorf("%+v, %v: want the mean power over the time", got, ok)
	}
	if got, ok := b.read(device, gpu.Sample{}, time.Second, deviceUse{}); ok {
		t.Errorf("%+v of nothing", got)
	}
}

func TestAProcessInAContainerBelongsToTheHolderOfTheDevice(t *testing.T) {
	attempts := []train.Attempt{attempt("a", 1, 10, 1, "gpu:1"), attempt("b", 1, 20, 1, device)}
	s := gpu.Sample{Processes: []gpu.Process{process(7, 0.5), process(8, 0.25)}}
	s.Processes[0].Memory = 10 * unit.GiB // perhaps not a container's
	on, _ := useOf(device, s, nil, living(nil), attempts)
	want := []event.Use{{Job: "b", Attempt: 1, Component: "gpu", Device: device, Work: 0.75, ContextSeconds: 1, ReservedRatio: 1}}
	if diff := cmp.Diff(want, on.uses(device, time.Second)); diff != "" || on.otherCount != 0 {
		t.Errorf("%d strangers, (-want +got)\n%s", on.otherCount, diff)
	}
	on, _ = useOf(device, s, nil, living(nil), append(attempts, attempt("c", 1, 30, 1, device)))
	want = []event.Use{
		{Job: "b", Attempt: 1, Component: "gpu", Device: device, Work: 0.375, ContextSeconds: 0.5, Estimated: true, ReservedRatio: 0.5},
		{Job: "c", Attempt: 1, Component: "gpu", Device: device, Work: 0.375, ContextSeconds: 0.5, Estimated: true, ReservedRatio: 0.5},
	}
	if diff := cmp.Diff(want, on.uses(device, time.Second)); diff != "" || on.otherCount != 0 {
		t.Errorf("shared: %d strangers, (-want +got)\n%s", on.otherCount, diff)
	}
}

func TestADeviceIsReservedForItsAttempts(t *testing.T) {
	attempts := []train.Attempt{attempt("a", 1, 10, 1, device), attempt("b", 2, 20, 1, device, "gpu:1")}
	on, _ := useOf(device, gpu.Sample{Processes: []gpu.Process{process(10, 0.5)}}, nil, living(map[int]runKey{10: runOf(attempts[0])}), attempts)
	want := []event.Use{
		{Job: "a", Attempt: 1, Component: "gpu", Device: device, Work: 0.5, ContextSeconds: 0.5, ReservedRatio: 0.5},
		{Job: "b", Attempt: 2, Component: "gpu", Device: device, ReservedRatio: 0.5},
	}
	if diff := cmp.Diff(want, on.uses(device, time.Second)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPartsOfADeviceComeBeforeTheirProcesses(t *testing.T) {
	on1 := func(pid, slice, size int) gpu.Process {
		return gpu.Process{PID: pid, Context: true, Slice: slice, SliceSize: size}
	}
	s := gpu.Sample{Processes: []gpu.Process{on1(1, 1, 3), on1(2, 1, 3), on1(3, 2, 4)}}
	on, _ := useOf(device, s, nil, living(map[int]runKey{1: {job: "a"}, 2: {job: "b"}, 3: {job: "c"}}), nil)
	for i, want := range []float64{1.5 / 7, 1.5 / 7, 4.0 / 7} {
		if got := on.uses(device, time.Second)[i]; got.Work != want || !got.Estimated {
			t.Errorf("%+v, want work %g, estimated", got, want)
		}
	}
}

func TestOwnersOfReusedNumbers(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	a, b := runKey{job: "a"}, runKey{job: "b"}
	for _, c := range []struct {
		name        string
		now, before *owned
		lives       bool
		last        time.Time
		want        runKey
		ours        bool
	}{
		{"it runs on", &owned{a, 1}, &owned{a, 1}, true, at(99), a, true},
		{"it came", &owned{a, 1}, nil, true, at(101), a, true},
		{"it ended: the last interval is still its job's", nil, &owned{a, 1}, false, at(99), a, true},
		{"it ended and worked nothing", nil, &owned{a, 1}, false, time.Time{}, a, true},
		{"its number went to another job after it worked", &owned{b, 2}, &owned{a, 1}, true, at(99), a, true},
		{"its number went to another job, which worked", &owned{b, 2}, &owned{a, 1}, true, at(101), b, true},
		{"its number went to a stranger after it worked", nil, &owned{a, 1}, true, at(99), a, true},
		{"its number went to a stranger, who worked", nil, &owned{a, 1}, true, at(101), runKey{}, false},
		{"a stranger", nil, nil, true, at(101), runKey{}, false},
		{"a stranger who ended", nil, nil, false, at(99), runKey{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := owners{now: map[int]owned{}, before: map[int]owned{}, began: func(int) (time.Time, bool) { return at(100), c.lives }}
			if c.now != nil {
				o.now[7] = *c.now
			}
			if c.before != nil {
				o.before[7] = *c.before
			}
			if got, ours := o.of(7, c.last); got != c.want || ours != c.ours {
				t.Errorf("%+v, %v", got, ours)
			}
		})
	}
}

// TestACounterIsFullyAttributed lets processes come, go and take each other's numbers while samples are missing: the
// intervals add up to the counter, and no process works or has a context for longer than the interval.
func TestACounterIsFullyAttributed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, who := &gpuMeter{}, living(nil)
		truth, first, sum := unit.Energy(0), unit.Energy(0), unit.Energy(0)
		for i := range rapid.IntRange(2, 30).Draw(t, "readings") {
			who.before = who.now
			who.now = map[int]owned{}
			s := gpu.Sample{HasEnergy: true}
			truth += unit.Energy(rapid.Int64Range(0, int64(700*unit.Joule)).Draw(t, "spent"))
			if i > 0 && rapid.IntRange(0, 9).Draw(t, "resets") == 0 {
				truth = unit.Energy(rapid.Int64Range(0, int64(truth)).Draw(t, "counter"))
			}
			s.Energy = truth
			for _, pid := range rapid.SliceOfNDistinct(rapid.IntRange(1, 6), 0, 5, rapid.ID[int]).Draw(t, "pids") {
				p := process(pid, rapid.Float64Range(0, 1).Draw(t, "utilisation")/5)
				p.Context = rapid.Bool().Draw(t, "context")
				s.Processes = append(s.Processes, p)
				if rapid.Bool().Draw(t, "ours") {
					who.now[pid] = owned{runKey{job: train.JobID(fmt.Sprintf("j%d", rapid.IntRange(0, 3).Draw(t, "job")))}, rapid.Uint64Range(0, 2).Draw(t, "start")}
				}
			}
			on, occupants := useOf(device, s, b.occupants, who, nil)
			b.occupants = occupants
			m, ok := b.read(device, s, time.Second, on)
			if !ok {
				first = s.Energy
				continue
			}
			sum += m.Energy
			if m.Energy >= 0 && (m.Idle < 0 || m.Idle > m.Energy) || m.Context < 0 {
				t.Fatalf("%+v", m)
			}
			for _, u := range on.uses(device, time.Second) {
				if u.Work > 1 || u.ContextSeconds > 6 || u.Work < 0 || u.ContextSeconds < 0 {
					t.Fatalf("%+v", u)
				}
			}
		}
		if sum != truth-first {
			t.Fatalf("got %d uJ, the counter went from %d to %d", sum, first, truth)
		}
	})
}
