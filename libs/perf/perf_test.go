package perf

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func units() fstest.MapFS {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"cpu/type": "4\n", "cpu/format/event": "config:0-7\n", "cpu/format/umask": "config:8-15\n", "cpu/format/inv": "config:23\n",
		"cpu/format/wide": "config:0-7,32-35\n", "cpu/format/ldlat": "config1:0-15\n", "cpu/format/odd": "elsewhere:3\n",
		"cpu/events/topdown-slots-issued": "event=0x0e,umask=0x01\n", "cpu/events/tx-start": "event=0xc9,umask=1,inv\n",
		"cpu/events/mem-loads": "event=0xcd,ldlat=3\n", "cpu/events/el-start": "wide=0xabc\n", "cpu/events/el-abort": "odd=1\n", "cpu/events/el-commit": "event=x\n",
		"msr/type": "10\n", "msr/format/event": "config:0-63\n", "msr/events/tsc": "event=0x00\n", "msr/events/smi": "event=0x04\n",
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func TestResolve(t *testing.T) {
	for _, want := range []Event{
		{Name: "instructions", Type: unix.PERF_TYPE_HARDWARE, Config: 1},
		{Name: "branches", Type: unix.PERF_TYPE_HARDWARE, Config: 4},
		{Name: "branch-misses", Type: unix.PERF_TYPE_HARDWARE, Config: 5},
		{Name: "L1-dcache-loads", Type: unix.PERF_TYPE_HW_CACHE, Config: 0},
		{Name: "LLC-store-misses", Type: unix.PERF_TYPE_HW_CACHE, Config: 0x1_01_02},
		{Name: "branch-load-misses", Type: unix.PERF_TYPE_HW_CACHE, Config: 0x1_00_05},
		{Name: "msr/tsc/", Type: 10},
		{Name: "msr/smi/", Type: 10, Config: 4},
		{Name: "cpu/topdown-slots-issued/", Type: 4, Config: 0x010e},
		{Name: "cpu/tx-start/", Type: 4, Config: 0x8001c9},
		{Name: "cpu/mem-loads/", Type: 4, Config: 0xcd, Config1: 3},
		{Name: "cpu/el-start/", Type: 4, Config: 0xa_0000_00bc},
	} {
		got, err := resolve(want.Name, units())
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v, (-want +got)\n%s", want.Name, err, diff)
		}
	}
	for _, name := range []string{"nonsense", "L9-loads", "cpu/absent/", "gpu/x/", "cpu/el-abort/", "cpu/el-commit/"} {
		if e, err := resolve(name, units()); err == nil {
			t.Errorf("%s is %+v", name, e)
		}
	}
}

func TestTheEventsArePipeTunes(t *testing.T) {
	names := hardwareNames()
	if unique := slices.Compact(slices.Sorted(slices.Values(names))); len(unique) != 58 {
		t.Errorf("%d events, want 58", len(unique))
	}
	data := os.Getenv("SWITCHYARD_DATA")
	if data == "" {
		t.Skip("the list of events is not part of the repository: SWITCHYARD_DATA names its folder")
	}
	text, err := os.ReadFile(filepath.Join(data, "pipetune", "derived", "perf_events_58.json"))
	if err != nil {
		t.Skip(err)
	}
	var list struct {
		A []string `json:"in_start_perf_comment"`
		B []string `json:"only_in_docs_figure"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(slices.Values(slices.Concat(list.A, list.B)))
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(names))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// register is a counter whose state a test sets.
type register struct {
	state  reading
	closed bool
}

func (r *register) Read(p []byte) (int, error) {
	raw := make([]byte, 0, 24)
	for _, w := range []uint64{r.state.value, r.state.enabled, r.state.running} {
		raw = binary.NativeEndian.AppendUint64(raw, w)
	}
	return bytes.NewReader(raw).Read(p)
}

func (r *register) Close() error { r.closed = true; return nil }

// machine opens the events that it has.
type machine struct {
	has       func(name string, cpu int) bool
	registers map[string][]*register
}

func (m *machine) open(e Event, cpu int) (io.ReadCloser, error) {
	if !m.has(e.Name, cpu) {
		return nil, unix.ENOENT
	}
	r := &register{}
	m.registers[e.Name] = append(m.registers[e.Name], r)
	return r, nil
}

func TestCountsAreScaledAndSummed(t *testing.T) {
	m := &machine{has: func(name string, _ int) bool { return name == "instructions" || name == "cpu-cycles" }, registers: map[string][]*register{}}
	c, err := openAll(units(), []int{0, 1}, m.open)
	if err != nil {
		t.Fatal(err)
	}
	if names := c.Names(); !slices.Equal(names, []string{"cpu-cycles", "instructions"}) || len(c.Missing()) != 56 {
		t.Errorf("%v, %d missing", names, len(c.Missing()))
	}
	set := func(name string, cpu int, value, enabled, running uint64) {
		m.registers[name][cpu].state = reading{value, enabled, running}
	}
	set("instructions", 0, 100, 10, 10)
	set("instructions", 1, 50, 10, 5) // it ran half of the time
	first, err := c.Read()
	if diff := cmp.Diff(map[string]float64{"instructions": 200}, first); diff != "" || err != nil {
		t.Errorf("error %v, (-want +got)\n%s", err, diff)
	}
	set("instructions", 0, 130, 20, 20)
	set("instructions", 1, 50, 20, 5) // it did not run
	set("cpu-cycles", 0, 7, 20, 20)
	second, err := c.Read()
	if diff := cmp.Diff(map[string]float64{"instructions": 30, "cpu-cycles": 7}, second); diff != "" || err != nil {
		t.Errorf("error %v, (-want +got)\n%s", err, diff)
	}
	c.Close()
	if !m.registers["instructions"][1].closed {
		t.Error("a counter was left open")
	}
}

func TestAVirtualMachineHasSoftwareEvents(t *testing.T) {
	m := &machine{has: func(name string, _ int) bool {
		return name == "msr/tsc/" || name == "page-faults" || name == "context-switches"
	}, registers: map[string][]*register{}}
	c, err := openAll(units(), []int{0}, m.open)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Names(); !slices.Equal(got, []string{"msr/tsc/", "page-faults", "context-switches"}) {
		t.Errorf("%v", got)
	}
	m.has = func(string, int) bool { return false }
	if c, err := openAll(units(), []int{0}, m.open); err == nil || !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v, error %v", c, err)
	}
	// An event that one of the processors does not count is not counted at all: the sum would be incomplete.
	m.has = func(name string, cpu int) bool { return name == "page-faults" || name == "instructions" && cpu == 0 }
	c, err = openAll(units(), []int{0, 1}, m.open)
	if err != nil || !slices.Equal(c.Names(), []string{"page-faults"}) || !m.registers["instructions"][0].closed {
		t.Errorf("%v, error %v", c.Names(), err)
	}
}

func TestParseOnline(t *testing.T) {
	got, err := parseOnline("0-2,5")
	if diff := cmp.Diff([]int{0, 1, 2, 5}, got); diff != "" || err != nil {
		t.Errorf("error %v, (-want +got)\n%s", err, diff)
	}
	if got, err := parseOnline("x"); err == nil {
		t.Errorf("%v", got)
	}
}

// TestThisMachine counts the events available here: at least page faults, which a test can cause.
func TestThisMachine(t *testing.T) {
	c, err := Open()
	if err != nil {
		t.Skipf("this machine lets nobody count: %v", err)
	}
	defer c.Close()
	if _, err := c.Read(); err != nil {
		t.Fatal(err)
	}
	counts, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(c.Names(), func(n string) bool { return n == "instructions" || n == "task-clock" || strings.HasPrefix(n, "msr/") }) || len(counts) == 0 {
		t.Errorf("%v of %v", counts, c.Names())
	}
	t.Logf("%d events counted, %d of the 58 missing", len(c.Names()), len(c.Missing()))
}

func FuzzPlace(f *testing.F) {
	f.Add(uint64(0xabc), "config:0-7,32-35")
	f.Add(uint64(1), "config1:63")
	f.Fuzz(func(t *testing.T, value uint64, format string) {
		var e Event
		if err := e.place(value, format); err == nil && value == 0 && (e.Config != 0 || e.Config1 != 0 || e.Config2 != 0) {
			t.Errorf("%+v of nothing", e)
		}
	})
}
