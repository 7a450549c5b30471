package meter

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

const root = proc.Root("/proc")

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func attempt(job train.JobID, number, pid int, start uint64, devices ...train.DeviceID) train.Attempt {
	return train.Attempt{Job: job, Number: number, PID: pid, PIDStart: start, BootID: "boot", Phase: train.PhaseRunning, Devices: devices}
}

func stats(all ...proc.Stat) map[int]proc.Stat {
	m := map[int]proc.Stat{}
	for _, s := range all {
		m[s.PID] = s
	}
	return m
}

func TestWorkOfAnAttempt(t *testing.T) {
	w := cpuTimes{since: 100, bootID: "boot", total: map[runKey]proc.Ticks{}}
	a, b := attempt("a", 1, 10, 50), attempt("b", 1, 20, 150)
	ra, rb := runOf(a), runOf(b)
	both := []train.Attempt{a, b}
	supervisorA, supervisorB := proc.Stat{PID: 10, Parent: 1, Start: 50, Own: 3}, proc.Stat{PID: 20, Parent: 1, Start: 150, Own: 2}
	for i, c := range []struct {
		all  map[int]proc.Stat
		want map[runKey]proc.Ticks
	}{
		// a began before this process did: what it used so far was measured already. b began later and counts from
		// its beginning.
		{stats(supervisorA, proc.Stat{PID: 11, Parent: 10, Own: 500}, supervisorB, proc.Stat{PID: 21, Parent: 20, Own: 7}), map[runKey]proc.Ticks{ra: 0, rb: 9}},
		// A grandchild counts, and so does a child that ended and waits to be noticed.
		{
			stats(
				supervisorA, proc.Stat{PID: 11, Parent: 10, Own: 510}, proc.Stat{PID: 12, Parent: 11, Own: 5},
				supervisorB, proc.Stat{PID: 21, Parent: 20, Own: 17, State: 'Z'},
			),
			map[runKey]proc.Ticks{ra: 15, rb: 10},
		},
		// Children that were waited for still count with their parents.
		{
			stats(proc.Stat{PID: 10, Parent: 1, Start: 50, Own: 3, Reaped: 530}, proc.Stat{PID: 20, Parent: 1, Start: 150, Own: 2, Reaped: 17}),
			map[runKey]proc.Ticks{ra: 533 - 518, rb: 0},
		},
		// The number of a supervisor was given to another process, and b's child took its time with it.
		{stats(proc.Stat{PID: 10, Parent: 1, Start: 999, Own: 1000}, proc.Stat{PID: 20, Parent: 1, Start: 150, Own: 2}), map[runKey]proc.Ticks{rb: 0}},
		{stats(proc.Stat{PID: 20, Parent: 1, Start: 150, Own: 6}), map[runKey]proc.Ticks{rb: 4}},
	} {
		if diff := cmp.Diff(c.want, w.used(c.all, both, nil), cmp.AllowUnexported(runKey{})); diff != "" {
			t.Errorf("reading %d (-want +got)\n%s", i, diff)
		}
	}
	otherBoot := attempt("c", 1, 20, 150)
	otherBoot.BootID = "before"
	unstarted := attempt("d", 1, 0, 0)
	if got := w.used(stats(supervisorB), []train.Attempt{otherBoot, unstarted}, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestWorkInAContainerIsFoundByItsMark(t *testing.T) {
	w := cpuTimes{bootID: "boot", total: map[runKey]proc.Ticks{}}
	a := attempt("a", 1, 10, 50)
	supervisor, engine := proc.Stat{PID: 10, Parent: 1, Start: 50, Own: 1}, proc.Stat{PID: 20, Parent: 1, Own: 900}
	all := stats(supervisor, engine, proc.Stat{PID: 21, Parent: 20, Start: 60, Own: 30}, proc.Stat{PID: 22, Parent: 21, Start: 61, Own: 4}, proc.Stat{PID: 30, Parent: 1, Own: 77})
	got := w.used(all, []train.Attempt{a}, map[int]string{21: a.Name(), 22: a.Name(), 30: "b/1/0123"})
	if want := (map[runKey]proc.Ticks{runOf(a): 35}); !cmp.Equal(got, want, cmp.AllowUnexported(runKey{})) {
		t.Errorf("%v, want %v", got, want)
	}
	if w.owner[22].run != runOf(a) || w.owner[20].run == runOf(a) {
		t.Errorf("owners %v", w.owner)
	}
}

func TestWorkInPodsIsFoundByItsMarkAlone(t *testing.T) {
	w := cpuTimes{since: 100, bootID: "boot", total: map[runKey]proc.Ticks{}}
	a, starting := attempt("a", 1, 0, 0), attempt("b", 1, 0, 0)
	starting.Phase = train.PhaseClaimed
	marks := map[int]string{21: a.Name(), 31: a.Name(), 41: starting.Name()}
	shim, other := proc.Stat{PID: 20, Parent: 1, Own: 900}, proc.Stat{PID: 41, Parent: 20, Start: 300, Own: 9}
	for i, c := range []struct {
		all  map[int]proc.Stat
		want proc.Ticks
	}{
		// One rank is older than this process, so what it used so far was measured already; the other is new.
		{stats(shim, other, proc.Stat{PID: 21, Parent: 20, Start: 50, Own: 500}, proc.Stat{PID: 31, Parent: 20, Start: 200, Own: 7}), 7},
		{stats(shim, other, proc.Stat{PID: 21, Parent: 20, Start: 50, Own: 510}, proc.Stat{PID: 31, Parent: 20, Start: 200, Own: 9}), 12},
		// A rank that has ended takes its time with it.
		{stats(shim, other, proc.Stat{PID: 31, Parent: 20, Start: 200, Own: 19}), 0},
		{stats(shim, other, proc.Stat{PID: 31, Parent: 20, Start: 200, Own: 24}), 5},
	} {
		got := w.used(c.all, []train.Attempt{a, starting}, marks)
		if want := (map[runKey]proc.Ticks{runOf(a): c.want}); !cmp.Equal(got, want, cmp.AllowUnexported(runKey{})) {
			t.Errorf("reading %d: %v, want %v", i, got, want)
		}
	}
}

// An attempt that has no place here counts if a process here carries its mark.
func TestOnlyMarkedAttemptsCountElsewhere(t *testing.T) {
	all := []train.Attempt{attempt("a", 1, 0, 0), attempt("b", 1, 0, 0)}
	marks := map[int]string{21: all[1].Name(), 22: "c/1/0123"}
	if got := marked(slices.Clone(all), marks); !cmp.Equal(got, all[1:]) {
		t.Errorf("%+v", got)
	}
	if got := marked(slices.Clone(all), nil); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestMarksAreReadFromTheEnvironment(t *testing.T) {
	a := attempt("a", 1, 10, 50)
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	cmd.Env = []string{train.MarkVariable + "=" + a.Name()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	awaitEnvironment(t, cmd.Process.Pid)
	all, err := root.Processes()
	if err != nil {
		t.Fatal(err)
	}
	var r markReader
	for range 2 { // the second time from memory
		if got := r.read(root, all)[cmd.Process.Pid]; got != a.Name() {
			t.Fatalf("mark %q, want %q", got, a.Name())
		}
	}
}

// awaitEnvironment waits until a process shows its environment: for an instant after exec it has none.
func awaitEnvironment(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil {
			t.Fatal(err)
		} else if len(environment) > 0 {
			return
		}
	}
	t.Fatalf("process %d has no environment", pid)
}

// What makes a container becomes the job's program late; until then it is looked at in vain.
func TestAProcessThatBecomesTheJobsProgramIsLookedAtAgain(t *testing.T) {
	a := attempt("a", 1, 10, 50)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read go; exec env "+train.MarkVariable+"="+a.Name()+" sleep 60")
	begin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var r markReader
	look := func() (name, mark string) {
		all, err := root.Processes()
		if err != nil {
			t.Fatal(err)
		}
		return all[cmd.Process.Pid].Name, r.read(root, all)[cmd.Process.Pid]
	}
	for range looks + 1 {
		if _, mark := look(); mark != "" {
			t.Fatalf("mark %q before the program began", mark)
		}
	}
	if _, err := begin.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	for name, mark := look(); mark != a.Name(); name, mark = look() {
		if name == "sleep" && mark == "" {
			awaitEnvironment(t, cmd.Process.Pid)
			if _, mark = look(); mark == "" {
				t.Fatal("the program has begun and its mark is not seen")
			}
		}
		if t.Context().Err() != nil {
			t.Fatal("the program never began")
		}
	}
}

func TestOwnersOfProcesses(t *testing.T) {
	w := cpuTimes{bootID: "boot"}
	a := attempt("a", 1, 10, 50)
	w.used(stats(proc.Stat{PID: 10, Parent: 1, Start: 50}, proc.Stat{PID: 11, Parent: 10}, proc.Stat{PID: 30, Parent: 1}), []train.Attempt{a}, nil)
	want := map[int]owned{10: {runOf(a), 50}, 11: {runOf(a), 0}}
	if diff := cmp.Diff(want, w.owner, cmp.AllowUnexported(runKey{}, owned{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestModel(t *testing.T) {
	m := Model{Idle: 10 * unit.Watt, Core: 6 * unit.Watt}
	total, idle := m.energy(1.5, time.Second)
	if total != 19*unit.Joule || idle != 10*unit.Joule {
		t.Errorf("%s, idle %s", total, idle)
	}
}

// cards is a gpu.Reader.
type cards struct {
	devices []gpu.Device
	err     error
	samples map[int]gpu.Sample
}

func (c *cards) Devices() ([]gpu.Device, error) { return c.devices, c.err }

func (c *cards) Sample(i int) (gpu.Sample, error) {
	s, ok := c.samples[i]
	if !ok {
		return s, errors.New("fell off the bus")
	}
	return s, nil
}

// spin starts a process that uses the processor, below a shell that stands for a supervisor. Both are in their own
// group, so that none outlives the test.
func spin(t *testing.T) train.Attempt {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "sh -c 'while :; do :; done' & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
	})
	all, err := root.Processes()
	if err != nil {
		t.Fatal(err)
	}
	boot, err := root.BootID()
	if err != nil {
		t.Fatal(err)
	}
	a := attempt("spin", 1, cmd.Process.Pid, all[cmd.Process.Pid].Start)
	a.BootID = boot
	return a
}

// TestThisMachine measures a real process by the real /proc.
func TestThisMachine(t *testing.T) {
	c := &cards{devices: []gpu.Device{{Index: 0, UUID: "u"}}, samples: map[int]gpu.Sample{0: {HasEnergy: true}}}
	m, err := New(Config{Proc: root, GPUs: c, Model: Model{Idle: 10 * unit.Watt, Core: 6 * unit.Watt}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	attempts := []train.Attempt{spin(t)}
	work, busy := 0.0, 0.0
	for began := time.Now(); work < 0.2 && t.Context().Err() == nil; {
		d := time.Since(began)
		began = began.Add(d)
		c.samples[0] = gpu.Sample{HasEnergy: true, Energy: c.samples[0].Energy + 5}
		r, err := m.Read(d, attempts)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Meters) != 2 || r.Meters[0].Method != "modelled" || r.Meters[1].Energy != 5 || len(r.Users) != 1 || r.Users[0].Job != "spin" {
			t.Fatalf("%+v", r)
		}
		cpu := r.Meters[0]
		if want, _ := m.config.Model.energy(cpu.Busy, d); cpu.Energy != want || cpu.Busy > cpu.Capacity {
			t.Fatalf("%+v, want %d uJ", cpu, want)
		}
		work, busy = work+r.Users[0].Work, busy+cpu.Busy
	}
	if busy == 0 {
		t.Error("a busy machine showed no work")
	}
	if want := []Status{{Method: "nvml"}, {Method: "modelled"}}; !slices.Equal(m.Statuses(), want) || len(m.Devices()) != 1 {
		t.Errorf("%v, %v", m.Statuses(), m.Devices())
	}
	delete(c.samples, 0)
	if r, err := m.Read(time.Second, nil); err != nil || len(r.Meters) != 1 {
		t.Errorf("%+v, error %v: a GPU that does not answer is left out", r, err)
	}
}

// TestInstancesOfOneGPU: the GPU is read once, and its energy belongs to the holders of its instances, by their
// sizes.
func TestInstancesOfOneGPU(t *testing.T) {
	c := &cards{
		devices: []gpu.Device{{Index: 0, Instance: 1, UUID: "MIG-a"}, {Index: 0, Instance: 2, UUID: "MIG-b"}},
		samples: map[int]gpu.Sample{0: counter(100, gpu.Process{PID: 11, Context: true, Slice: 1, SliceSize: 4}, gpu.Process{PID: 12, Context: true, Slice: 2, SliceSize: 3})},
	}
	m := &Meter{config: Config{GPUs: c, Log: quiet()}, gpuMeters: map[int]*gpuMeter{}, lastError: map[string]string{}}
	who := living(map[int]runKey{11: {job: "a", attempt: 1}, 12: {job: "b", attempt: 1}})
	attempts := []train.Attempt{
		{Job: "a", Number: 1, Devices: []train.DeviceID{"gpu:0:0"}}, {Job: "b", Number: 1, Devices: []train.DeviceID{"gpu:0:1"}}, {Job: "c", Number: 1, Devices: []train.DeviceID{"gpu:1"}},
	}
	m.accelerators(time.Second, c.devices, attempts, who)
	c.samples[0] = counter(170, c.samples[0].Processes...)
	meters, users := m.accelerators(time.Second, c.devices, attempts, who)
	if len(meters) != 1 || meters[0].Device != "gpu:0" || meters[0].Energy != 70*unit.Joule {
		t.Errorf("%+v, want 70 J of the one GPU", meters)
	}
	want := []event.Use{
		{Job: "a", Attempt: 1, Component: "gpu", Device: "gpu:0", Work: 4. / 7, Estimated: true, ContextSeconds: 1, ReservedRatio: 0.5},
		{Job: "b", Attempt: 1, Component: "gpu", Device: "gpu:0", Work: 3. / 7, Estimated: true, ContextSeconds: 1, ReservedRatio: 0.5},
	}
	if diff := cmp.Diff(want, users, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// scripted is a Source with given readings.
type scripted struct {
	name  string
	spent []Spent
	err   error
}

func (s *scripted) Method() string { return s.name }

func (s *scripted) Read(time.Duration) ([]Spent, error) { return s.spent, s.err }

func TestTheFirstSourceOfAComponentWins(t *testing.T) {
	covered := 400 * time.Millisecond
	zones := &scripted{name: "rapl", spent: []Spent{{Component: "cpu", Energy: 1000}}}
	log := &scripted{name: "pcm", spent: []Spent{{Component: "cpu", Energy: 7}, {Component: "dram", Energy: 30}}}
	plug := &scripted{name: "pdu", spent: []Spent{{Component: "node", Energy: 5000, Covered: &covered}}}
	m, err := New(Config{Proc: root, Sources: []Source{zones, log, plug}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	read := func() map[string]event.Meter {
		t.Helper()
		r, err := m.Read(time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		reported := map[string]event.Meter{}
		for _, e := range r.Meters {
			reported[e.Component] = e
		}
		return reported
	}
	check := func(got map[string]event.Meter, component, method string, energy unit.Energy) {
		t.Helper()
		if m := got[component]; m.Method != method || m.Energy != energy {
			t.Errorf("%+v, want %d uJ by %s", m, energy, method)
		}
	}
	got := read()
	check(got, "cpu", "rapl", 1000)
	check(got, "dram", "pcm", 30)
	check(got, "node", "pdu", 5000)
	if cpu := got["cpu"]; cpu.Idle < 0 || cpu.Idle > 1000 || cpu.Capacity == 0 {
		t.Errorf("%+v", cpu)
	}
	if node := got["node"]; *node.CoveredSeconds != 0.4 || node.Idle != 0 || node.Capacity != 0 {
		t.Errorf("%+v", node)
	}
	zones.err, plug.err = errors.New("permission denied"), errors.New("no route to host")
	got = read()
	check(got, "cpu", "pcm", 7)
	if _, reported := got["node"]; reported || len(got) != 2 {
		t.Errorf("%+v: want nothing of the node", got)
	}
	want := []Status{{"rapl", "permission denied"}, {"pcm", ""}, {"pdu", "no route to host"}}
	if diff := cmp.Diff(want, m.Statuses()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	log.err = errors.New("no such file")
	if cpu := read()["cpu"]; cpu.Method != "modelled" || m.Statuses()[3] != (Status{Method: "modelled"}) {
		t.Errorf("%+v, %v: want the model if no source reports", cpu, m.Statuses())
	}
}

// counted is an Events that counts its readings.
type counted struct{ n float64 }

func (c *counted) Read() (map[string]float64, error) {
	c.n++
	return map[string]float64{"page-faults": c.n}, nil
}

func TestCountersAreReadWhileAttemptsRun(t *testing.T) {
	m := &Meter{config: Config{Events: &counted{}, Log: quiet()}, lastError: map[string]string{}}
	second := func(busy bool) (map[string]float64, time.Duration) { return m.count(time.Second, busy) }
	if got, _ := second(false); got != nil {
		t.Errorf("%v while no attempt runs", got)
	}
	for round := range 2 {
		if got, _ := second(true); got != nil {
			t.Errorf("%v: what happened before is not theirs", got)
		}
		for i := range 20 {
			got, over := second(true)
			if due := i%10 == 9; (got != nil) != due || due && over != 10*time.Second {
				t.Errorf("round %d, second %d: %v over %s", round, i, got, over)
			}
		}
		second(false)
	}
	if reads := m.config.Events.(*counted).n; reads != 2*3 {
		t.Errorf("%g reads, want 6", reads)
	}
}

// Knowing the record of an attempt is not enough to have work billed to it.
func TestWorkIsBilledByASecretMark(t *testing.T) {
	mark := train.Mark("a", 1, "token")
	a := train.Attempt{Job: "a", Number: 1, Phase: train.PhaseRunning, TokenHash: "0123456789abcdef0123", MarkHash: train.Hash(mark)}
	for guess, want := range map[string]bool{mark: true, a.Name(): false, a.MarkHash: false, train.Mark("a", 1, a.TokenHash): false, "": false} {
		w := &cpuTimes{}
		all := stats(proc.Stat{PID: 30, Parent: 1, Own: 7})
		got := w.used(all, []train.Attempt{a}, map[int]string{30: guess})
		if _, billed := got[runOf(a)]; billed != want {
			t.Errorf("the mark %q: billed %v", guess, billed)
		}
	}
}

// An idle server does not read all processes of its machine each second.
func TestProcessesAreReadWhileAttemptsMayOwnThem(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"stat": "cpu 1 0 0 0 0 0 0 0 0 0\ncpu0 1 0 0 0 0 0 0 0 0 0\n", "uptime": "10.00 10.00\n",
		"sys/kernel/random/boot_id": "boot\n", "4242/stat": "unreadable",
	} {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var elsewhere []train.Attempt
	m, err := New(Config{Proc: proc.Root(folder), Elsewhere: func() []train.Attempt { return elsewhere }, Log: quiet()})
	if err != nil {
		t.Fatal("no attempt owns that process:", err)
	}
	if _, err := m.Read(time.Second, []train.Attempt{attempt("a", 1, 10, 50)}); err == nil {
		t.Error("an attempt may own that process")
	}
	if _, err := m.Read(time.Second, nil); err != nil {
		t.Error("the attempt has ended, and owned nothing:", err)
	}
	elsewhere = []train.Attempt{attempt("b", 1, 0, 0)}
	if _, err := m.Read(time.Second, nil); err == nil {
		t.Error("an attempt of another node may have processes here")
	}
	elsewhere = nil
	for _, count := range []*map[int]owned{&m.cpuTimes.owner, &m.cpuTimes.former} {
		m.cpuTimes.owner, m.cpuTimes.former = nil, nil
		*count = map[int]owned{4242: {}}
		if _, err := m.Read(time.Second, nil); err == nil {
			t.Error("what that process did since the last reading may belong to an attempt that has ended")
		}
	}
}
