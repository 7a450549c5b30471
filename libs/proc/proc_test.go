package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func line(name string) string {
	return "4242 (" + name + ") S 17 4242 4243 0 -1 4194560 1 2 3 4 100 20 7 3 20 0 5 0 98765 1000 50 18446744073709551615 1 1 0 0 0\n"
}

func TestParseStat(t *testing.T) {
	want := Stat{PID: 4242, Parent: 17, Session: 4243, State: 'S', Threads: 5, Own: 120, Reaped: 10, Start: 98765}
	for _, name := range []string{"python", "tmux: server", "a) S 1 2 (b", ") R 1 1 1 (", "", "\xff\x01"} {
		want.Name = name
		got, err := ParseStat([]byte(line(name)))
		if err != nil || got != want {
			t.Errorf("name %q: %+v, error %v; want %+v", name, got, err, want)
		}
	}
	for threads, over := range map[string]bool{"1": true, "2": false} { // another thread goes on, or executes a program
		ended := strings.Replace(strings.Replace(line("x"), ") S", ") Z", 1), "20 0 5", "20 0 "+threads, 1)
		if got, err := ParseStat([]byte(ended)); err != nil || got.Over() != over {
			t.Errorf("a first thread that has ended, of %s: over %v, error %v", threads, got.Over(), err)
		}
	}
	for _, bad := range []string{"", "4242", "4242 (x)", "x (y) S 1", "4242 (x) S 17 4242", ")(", strings.Replace(line("x"), "98765", "soon", 1), strings.Replace(line("x"), ") S", ") SS", 1)} {
		if got, err := ParseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %+v, want an error", bad, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(line("x")))
	f.Add([]byte("1 ((sd-pam)) S 1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := ParseStat(data); err == nil && s.State == 0 {
			t.Errorf("%q: %+v", data, s)
		}
	})
}

func TestParseCPU(t *testing.T) {
	const text = "cpu  100 10 50 9000 700 5 6 44 30 3\ncpu0 50 5 25 4500 350 2 3 22 15 1\ncpu1 50 5 25 4500 350 3 3 22 15 2\nintr 1\ncpufreq x\n"
	got, err := ParseCPU([]byte(strings.Replace(text, "cpufreq x\n", "", 1)))
	if want := (CPU{Busy: 171, Cores: 2}); err != nil || got != want {
		t.Errorf("%+v, error %v; want %+v: neither idle, waiting nor stolen time is work", got, err, want)
	}
	for _, bad := range []string{"", "intr 1\n", "cpu 1 2 3\ncpu0 1\n", "cpu 1 x 3 4 5 6 7 8\ncpu0 1\n", "cpu 1 2 3 4 5 6 7 8\n"} {
		if got, err := ParseCPU([]byte(bad)); err == nil {
			t.Errorf("%q: %+v, want an error", bad, got)
		}
	}
}

func TestParseUptime(t *testing.T) {
	if got, err := ParseUptime([]byte("350735.47 234388.90\n")); err != nil || got != 350735470*time.Millisecond {
		t.Errorf("%s, error %v", got, err)
	}
	if _, err := ParseUptime(nil); err == nil {
		t.Error("want an error")
	}
}

func TestTree(t *testing.T) {
	all := map[int]Stat{}
	for _, s := range []Stat{
		{PID: 1}, {PID: 10, Parent: 1, Start: 5}, {PID: 11, Parent: 10}, {PID: 12, Parent: 11, State: 'Z'}, {PID: 20, Parent: 1}, {PID: 21, Parent: 20},
	} {
		all[s.PID] = s
	}
	var pids []int
	for pid := range NewForest(all).Tree(10, 5) {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	if diff := cmp.Diff([]int{10, 11, 12}, pids); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if NewForest(all).Tree(10, 6) != nil || NewForest(all).Tree(99, 5) != nil {
		t.Error("a process that is not this one has a tree")
	}
}

// TestThisMachine reads the real /proc: the test's own process must be in it, and burnt time must show.
func TestThisMachine(t *testing.T) {
	const root = Root("/proc")
	before, err := root.Processes()
	if err != nil {
		t.Fatal(err)
	}
	me, found := before[os.Getpid()]
	if !found || me.Parent != os.Getppid() || me.Start == 0 {
		t.Fatalf("%+v of pid %d, parent %d", me, os.Getpid(), os.Getppid())
	}
	if one, err := root.Process(os.Getpid()); err != nil || one.Start != me.Start || one.Over() {
		t.Errorf("%+v, error %v", one, err)
	}
	if _, err := root.Process(-1); err == nil {
		t.Error("there is a process -1")
	}
	cpu, err := root.CPU()
	if err != nil || cpu.Cores < 1 || cpu.Busy <= 0 {
		t.Fatalf("%+v, error %v", cpu, err)
	}
	uptime, err := root.Uptime()
	if err != nil || uptime.Seconds() < float64(me.Start)/TicksPerSecond {
		t.Errorf("uptime %s, error %v: this process began %d ticks after the boot", uptime, err, me.Start)
	}
	if id, err := root.BootID(); err != nil || len(id) != 36 {
		t.Errorf("boot id %q, error %v", id, err)
	}
	for now := me; now.Own < me.Own+5; {
		all, err := root.Processes()
		if err != nil {
			t.Fatal(err)
		}
		now = all[os.Getpid()]
	}
}

func TestWhatIsNotThereIsAnError(t *testing.T) {
	root := Root(filepath.Join(t.TempDir(), "none"))
	_, errA := root.Processes()
	_, errB := root.CPU()
	_, errC := root.Uptime()
	_, errD := root.BootID()
	for i, err := range []error{errA, errB, errC, errD} {
		if err == nil {
			t.Errorf("reading %d: want an error", i)
		}
	}
}
