package proc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func lay(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGroup(t *testing.T) {
	root := t.TempDir()
	lay(t, root, map[string]string{
		"proc/1/cgroup": "0::/\n", "proc/2/cgroup": "0::/pod.slice/c1.scope\n", "proc/3/cgroup": "4:memory:/m\n3:cpu,cpuacct:/docker/c2\n",
		"proc/4/cgroup": "0::/gone\n", "proc/5/cgroup": "0::/../../outside\n", "proc/6/cgroup": "0::/odd\n",
		"cg/pod.slice/c1.scope/cpu.stat": "usage_usec 2500000\nuser_usec 2000000\n", "cg/pod.slice/c1.scope/cgroup.procs": "2\n20\n",
		"cg/cpuacct/docker/c2/cpuacct.usage": "7340000000\n", "cg/cpuacct/docker/c2/cgroup.procs": "",
		"cg/odd/cpu.stat": "nr_periods 4\n",
	})
	for _, c := range []struct {
		pid     int
		used    Ticks
		members []int
		found   bool
	}{
		{1, 0, nil, false}, {2, 250, []int{2, 20}, true}, {3, 734, nil, true}, {4, 0, nil, false}, {5, 0, nil, false}, {6, 0, nil, false}, {99, 0, nil, false},
	} {
		g, found := Root(filepath.Join(root, "proc")).Group(c.pid, filepath.Join(root, "cg"))
		if found != c.found {
			t.Errorf("process %d: %+v, found %v", c.pid, g, found)
		}
		if !found {
			continue
		}
		used, err := g.Used()
		members, listErr := g.Members()
		if used != c.used || err != nil || listErr != nil || !slices.Equal(members, c.members) {
			t.Errorf("process %d: %d ticks, error %v, members %v, error %v", c.pid, used, err, members, listErr)
		}
	}
}
