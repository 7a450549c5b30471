package rapl

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/meter"
)

// tree copies a fixture into memory, where it can be changed.
func tree(t *testing.T, name string) fstest.MapFS {
	t.Helper()
	m := fstest.MapFS{}
	root := filepath.Join("testdata", name)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		m[filepath.ToSlash(rel)] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func set(m fstest.MapFS, zone string, value int64) {
	m[path.Join(zone, "energy_uj")] = &fstest.MapFile{Data: []byte(strconv.FormatInt(value, 10) + "\n")}
}

// opened takes the first reading of a tree.
func opened(t *testing.T, root fs.FS) *Counters {
	t.Helper()
	c, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if first, err := c.Read(0); err != nil || first != nil {
		t.Fatalf("first reading %v, error %v: there is nothing to compare with yet", first, err)
	}
	return c
}

func TestWhatIsSummed(t *testing.T) {
	for _, c := range []struct {
		tree string
		now  map[string]int64
		want []meter.Spent
	}{
		{
			"desktop", // the parts of the package, the platform and the second view of the same package add nothing
			map[string]int64{
				"intel-rapl:0": 1700, "intel-rapl:0:0": 900, "intel-rapl:0:1": 600, "intel-rapl:0:2": 310, "intel-rapl:1": 9000,
				"intel-rapl-mmio:0": 1700, "intel-rapl-mmio:0:0": 310,
			},
			[]meter.Spent{{Component: "cpu", Energy: 700}, {Component: "dram", Energy: 10}},
		},
		{
			"server",
			map[string]int64{"intel-rapl:0": 1100, "intel-rapl:0:0": 11, "intel-rapl:1": 2200, "intel-rapl:1:0": 22},
			[]meter.Spent{{Component: "cpu", Energy: 300}, {Component: "dram", Energy: 3}},
		},
	} {
		t.Run(c.tree, func(t *testing.T) {
			m := tree(t, c.tree)
			counters := opened(t, m)
			for zone, v := range c.now {
				set(m, zone, v)
			}
			got, err := counters.Read(time.Second)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("error %v, (-want +got)\n%s", err, diff)
			}
		})
	}
}

func TestNothingToRead(t *testing.T) {
	for name, root := range map[string]fs.FS{
		"no folder": os.DirFS(filepath.Join("testdata", "absent")), "an empty one": fstest.MapFS{}, "the platform alone": tree(t, "platform"),
	} {
		c, err := Open(root)
		if c != nil || err != nil {
			t.Errorf("%s: %+v, error %v", name, c, err)
		}
	}
}

// locked refuses to open what belongs to root alone, as Linux does with energy_uj.
type locked struct {
	fs.FS
	prefix string
}

func (l locked) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, l.prefix) && strings.HasSuffix(name, "/energy_uj") {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return l.FS.Open(name)
}

func TestAnUnreadableZoneIsReported(t *testing.T) {
	c, err := Open(locked{tree(t, "server"), "intel-rapl:1"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := c.Read(time.Second)
		if got != nil || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "package-1-die-0") {
			t.Errorf("%v, error %v: want the zone that is missing, and no sum without it", got, err)
		}
	}
}

func TestAZoneThatVanishesAndComesBack(t *testing.T) {
	m := tree(t, "server")
	c := opened(t, m)
	kept := m["intel-rapl:0/energy_uj"]
	delete(m, "intel-rapl:0/energy_uj")
	if got, err := c.Read(time.Second); got != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v, error %v", got, err)
	}
	m["intel-rapl:0/energy_uj"] = kept
	if got, err := c.Read(time.Second); got != nil || err != nil {
		t.Fatalf("%v, error %v: there is nothing to compare with yet", got, err)
	}
	set(m, "intel-rapl:0", 1005)
	if got, err := c.Read(time.Second); err != nil || len(got) != 2 || got[0].Energy != 5 {
		t.Fatalf("%v, error %v", got, err)
	}
}

func TestDifference(t *testing.T) {
	const size = 262_143_328_850
	for _, c := range []struct {
		name            string
		last, now, want unit.Energy
	}{
		{"nothing", 5, 5, 0},
		{"grows", 5, 12, 7},
		{"begins anew at its end", size - 10, 20, 30},
		{"was reset: a wrap would be 262 kJ in a second", 1000, 20, -980},
	} {
		if got := difference(c.last, c.now, size, time.Second); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestWrapsLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 65_712_999_613
		at := rapid.Int64Range(0, size-1).Draw(t, "start")
		truth, sum := unit.Energy(0), unit.Energy(0)
		for range rapid.IntRange(1, 50).Draw(t, "readings") {
			spent := rapid.Int64Range(0, int64(mostPower)).Draw(t, "spent")
			next := (at + spent) % size
			sum += difference(unit.Energy(at), unit.Energy(next), size, time.Second)
			truth += unit.Energy(spent)
			at = next
		}
		if sum != truth {
			t.Fatalf("%d, want %d", sum, truth)
		}
	})
}
