package inventory

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/proc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

func TestSlots(t *testing.T) {
	slot := func(n, core int) train.Device {
		return train.Device{ID: train.DeviceID("cpu:" + string(rune('0'+n))), Kind: train.KindCPU, Core: core}
	}
	for _, c := range []struct {
		name    string
		n       int
		cores   int
		allowed []int
		want    []train.Device
	}{
		{"one per core", 0, 2, []int{4, 6}, []train.Device{slot(0, 4), slot(1, 6)}},
		{"fewer than cores, by quota", 0, 1, []int{4, 6}, []train.Device{slot(0, 4)}},
		{"more than cores", 3, 2, []int{4, 6}, []train.Device{slot(0, 4), slot(1, 6), slot(2, 4)}},
	} {
		if diff := cmp.Diff(c.want, slots(c.n, c.cores, c.allowed)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, diff)
		}
	}
}

func TestWhatIsOffered(t *testing.T) {
	gpus := []gpu.Device{{Index: 0, UUID: "GPU-a", Model: "T4", Memory: 16 * unit.GiB, PowerLimit: unit.Watts(70)}}
	card := []train.Device{{ID: "gpu:0", Kind: train.KindGPU, Model: "T4", UUID: "GPU-a", Memory: 16 * unit.GiB, BusyWatts: 70, Enforcement: train.EnforcedByAdvice}}
	// What limits jobs to their shares: the daemon, but not for simulated GPUs or instances, and nothing if the
	// memory is unknown.
	levels := []gpu.Device{
		{Index: 0, Memory: unit.GiB}, {Index: 1, Instance: 2, Memory: unit.GiB}, {Index: 2, Memory: unit.GiB, Simulated: true}, {Index: 3, Simulated: true},
	}
	enforced := []train.Device{
		{ID: "gpu:0", Kind: train.KindGPU, Memory: unit.GiB, Enforcement: train.EnforcedByMPS},
		{ID: "gpu:1:1", Kind: train.KindGPU, Memory: unit.GiB, Enforcement: train.EnforcedByMIG},
		{ID: "gpu:2", Kind: train.KindGPU, Memory: unit.GiB, Simulated: true, Enforcement: train.EnforcedByAdvice},
		{ID: "gpu:3", Kind: train.KindGPU, Simulated: true, Enforcement: train.NotEnforced},
	}
	slot := []train.Device{{ID: "cpu:0", Kind: train.KindCPU, Core: 3}}
	for _, c := range []struct {
		kind string
		gpus []gpu.Device
		mps  bool
		want []train.Device
	}{
		{KindAuto, gpus, false, card},
		{KindAuto, nil, false, slot},
		{KindGPU, gpus, false, card},
		{KindGPU, nil, false, []train.Device{}},
		{KindCPU, gpus, false, slot},
		{KindGPU, levels, true, enforced},
	} {
		i := &Inventory{config: Config{Kind: c.kind}, cores: 1, allowed: []int{3}}
		if diff := cmp.Diff(c.want, i.devices(c.gpus, c.mps)); diff != "" {
			t.Errorf("%s with %d GPUs (-want +got)\n%s", c.kind, len(c.gpus), diff)
		}
	}
}

func TestAGPUInTroubleIsNotOffered(t *testing.T) {
	i := &Inventory{config: Config{Kind: KindAuto, Access: func(g gpu.Device) Access { return Access{Resource: "r-" + g.UUID, Units: 16} }}, cores: 1, allowed: []int{3}}
	well, sick := gpu.Device{Index: 0, UUID: "a", Simulated: true}, gpu.Device{Index: 1, UUID: "b", Trouble: "it smokes"}
	card := train.Device{ID: "gpu:0", Kind: train.KindGPU, UUID: "a", Simulated: true, Resource: "r-a", Units: 16, Enforcement: train.NotEnforced}
	for _, step := range []struct {
		gpus []gpu.Device
		want []train.Device
	}{{[]gpu.Device{well, sick}, []train.Device{card}}, {[]gpu.Device{sick}, []train.Device{}}, {nil, []train.Device{}}} {
		if diff := cmp.Diff(step.want, i.devices(step.gpus, true)); diff != "" {
			t.Errorf("%+v (-want +got)\n%s", step.gpus, diff)
		}
	}
}

// groups writes files below a folder.
func groups(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name       string
		membership string
		files      map[string]string
		want       limits
		cores      int // of 4 that are allowed
	}{
		{"none", "0::/\n", nil, limits{}, 4},
		{"no limit", "0::/a\n", map[string]string{"a/cpu.max": "max 100000\n", "a/memory.max": "max\n"}, limits{}, 4},
		{"a quota above", "0::/a/b\n", map[string]string{"a/cpu.max": "150000 100000\n", "a/b/cpu.max": "400000 100000\n", "a/b/memory.max": "1048576\n"}, limits{1.5, unit.MiB}, 2},
		{"the first version", "4:memory:/m\n1:cpu,cpuacct:/c\n", map[string]string{"cpu/c/cpu.cfs_quota_us": "50000\n", "cpu/c/cpu.cfs_period_us": "100000\n", "memory/m/memory.limit_in_bytes": "2097152\n"}, limits{0.5, 2 * unit.MiB}, 1},
		{"the first version without a quota", "1:cpu:/c\n", map[string]string{"cpu/c/cpu.cfs_quota_us": "-1\n", "cpu/c/cpu.cfs_period_us": "100000\n"}, limits{}, 4},
		{"garbage", "x\n0::/a\n", map[string]string{"a/cpu.max": "soon\n", "a/memory.max": "-5\n"}, limits{}, 4},
		{"more than there are", "0::/\n", map[string]string{"cpu.max": "6400000 100000\n"}, limits{64, 0}, 4},
	} {
		got := readLimits(c.membership, groups(t, c.files))
		if got != c.want || coreCount(4, got) != c.cores {
			t.Errorf("%s: %+v, %d cores; want %+v, %d", c.name, got, coreCount(4, got), c.want, c.cores)
		}
	}
}

func TestParseMemory(t *testing.T) {
	if got, err := parseMemory("MemFree: 1 kB\nMemTotal:       2048 kB\n"); err != nil || got != 2*unit.MiB {
		t.Errorf("%s, error %v", got, err)
	}
	for _, bad := range []string{"", "MemTotal: many kB\n", "MemTotal: 5\n"} {
		if _, err := parseMemory(bad); err == nil {
			t.Errorf("%q: want an error", bad)
		}
	}
}

func TestThisMachine(t *testing.T) {
	i, err := New(Config{Kind: KindCPU, Slots: 3, Proc: "/proc", Cgroups: "/sys/fs/cgroup"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	now := time.Unix(1000, 0)
	n := i.Node(t.Context(), "n1", nil, now)
	if n.ID != "n1" || n.BootID == "" || n.Cores < 1 || n.Memory < unit.MiB || len(n.Devices) != 3 || n.ContainerRuntime != "" || !n.SeenAt.Equal(now) {
		t.Errorf("%+v", n)
	}
	for _, d := range n.Devices {
		if !slices.Contains(i.allowed, d.Core) {
			t.Errorf("%+v: not one of the processors %v", d, i.allowed)
		}
	}
}

// An agent in its own pod reports what the machine has, not its own limits.
func TestLimitsOfTheAgentsOwnPodDoNotCount(t *testing.T) {
	root := groups(t, map[string]string{
		"self/cgroup": "0::/pod\n", "sys/kernel/random/boot_id": "b\n", "meminfo": "MemTotal: 2097152 kB\n",
	})
	mount := groups(t, map[string]string{"pod/memory.max": "1048576\n", "pod/cpu.max": "10000 100000\n"})
	for cgroups, want := range map[string]unit.Bytes{mount: unit.MiB, "": 2 * unit.GiB} {
		i, err := New(Config{Kind: KindCPU, Proc: proc.Root(root), Cgroups: cgroups})
		if err != nil {
			t.Fatal(err)
		}
		if i.memory != want || cgroups != "" && i.cores != 1 || cgroups == "" && i.cores != len(i.allowed) {
			t.Errorf("cgroups %q: %s and %d of %d cores, want %s", cgroups, i.memory, i.cores, len(i.allowed), want)
		}
	}
}

func TestContainerRuntime(t *testing.T) {
	program := func(name, script string) (dir string) {
		return groups(t, map[string]string{name: "#!/bin/sh\n" + script + "\n"})
	}
	for _, c := range []struct{ name, program, script, want string }{
		{"none", "other", "exit 0", ""},
		{"docker without its server", "docker", "exit 1", ""},
		{"docker", "docker", `[ "$1" = info ]`, "docker"},
		{"podman", "podman", `[ "$1" = info ]`, "podman"},
	} {
		dir := program(c.program, c.script)
		if err := os.Chmod(filepath.Join(dir, c.program), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir)
		i := &Inventory{}
		now := time.Unix(1000, 0)
		if got := i.containerRuntime(t.Context(), now); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		// Asked again soon it is remembered, later it is not.
		t.Setenv("PATH", t.TempDir())
		if got := i.containerRuntime(t.Context(), now.Add(runtimeInterval-1)); got != c.want {
			t.Errorf("%s a moment later: %q, want %q", c.name, got, c.want)
		}
		if got := i.containerRuntime(t.Context(), now.Add(runtimeInterval)); got != "" {
			t.Errorf("%s after it was removed: %q", c.name, got)
		}
	}
}
