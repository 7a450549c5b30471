package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// repairBench is a bus with all streams and buckets, and an empty data folder.
type repairBench struct {
	t         *testing.T
	bus       *bus.Bus
	url, data string
}

func newRepairBench(t *testing.T) *repairBench {
	t.Helper()
	s := bustest.Start(t)
	conn, err := bus.Connect(t.Context(), bus.Config{URL: s.URL(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if err := conn.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &repairBench{t, conn, s.URL(), t.TempDir()}
}

// run runs a command line against the bus.
func (b *repairBench) run(args ...string) (int, string) {
	b.t.Helper()
	var out bytes.Buffer
	code := Main(append([]string{"switchyard"}, args...), &out, &out)
	return code, out.String()
}

// Without --data-dir, as the runbook writes it, `repair` finds what services of the running `switchyard up` noticed.
func TestRepairReadsTheFolderOfTheRunningServer(t *testing.T) {
	b := newRepairBench(t)
	context := filepath.Join(t.TempDir(), "context.json")
	t.Setenv("SWITCHYARD_CONTEXT", context)
	t.Setenv("SWITCHYARD_DATA_DIR", "")
	if err := installation.WriteContext(context, installation.Context{NATS: b.url, DataDir: b.data}); err != nil {
		t.Fatal(err)
	}
	if code, out := b.run("repair", "--check"); code != 0 || !strings.Contains(out, "no service has noted in "+b.data) {
		t.Errorf("nothing noted: exit %d: %s", code, out)
	}
	seen := filepath.Join(b.data, run.SeenFolder)
	note := `{"streams":{"JOBS":{"created":"2026-01-31T12:00:00Z","last":70}},"losses":{"JOBS":{"stream":"JOBS","cause":"begins at 66, but began at 1","at":"2026-01-31T12:00:00Z"}}}`
	if err := os.Mkdir(seen, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(seen, "admission.json"), []byte(note), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := b.run("repair", "--check"); code != 1 || !strings.Contains(out, "JOBS begins at 66, but began at 1") || strings.Contains(out, "no service has noted") {
		t.Errorf("exit %d: %s", code, out)
	}
	// That of another bus says nothing.
	elsewhere := installation.Context{NATS: "nats://127.0.0.1:1", DataDir: b.data}
	if err := installation.WriteContext(context, elsewhere); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	if code, out := b.run("repair", "--check", "--nats", b.url); code != 0 || strings.Contains(out, "begins at 66") {
		t.Errorf("another bus: exit %d: %s", code, out)
	}
	t.Setenv("SWITCHYARD_DATA_DIR", b.data)
	if code, out := b.run("repair", "--check", "--nats", b.url); code != 1 || !strings.Contains(out, "begins at 66") {
		t.Errorf("by the environment: exit %d: %s", code, out)
	}
}

// A file that a bucket lacks nothing of is no finding, and what is put back into the register is folded before the
// register is compared.
func TestRepairPutsBackOnlyWhatIsLacking(t *testing.T) {
	b := newRepairBench(t)
	jobs, err := bus.OpenKV(t.Context(), b.bus, contract.Jobs)
	if err != nil {
		t.Fatal(err)
	}
	if err := jobs.Put(t.Context(), "j1", train.Job{ID: "j1"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "b.tar")
	if code, out := b.run("backup", file, "--nats", b.url); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	repair := func(more ...string) (int, string) {
		return b.run(append([]string{"repair", "--nats", b.url, "--data-dir", b.data}, more...)...)
	}
	if code, out := repair("--check", "--from", "/nowhere/b.tar"); code != 1 || !strings.Contains(out, "no such file or directory\n  fix: name a file of `switchyard backup`") {
		t.Errorf("no file: exit %d: %s", code, out)
	}
	for _, more := range [][]string{{"--check"}, nil} {
		if code, out := repair(append(more, "--from", file)...); code != 0 || !strings.Contains(out, "nothing is wrong") {
			t.Errorf("nothing lacks, %v: exit %d: %s", more, code, out)
		}
	}
	e, err := jobs.Get(t.Context(), "j1")
	if err != nil {
		t.Fatal(err)
	}
	if err := jobs.Delete(t.Context(), "j1", e.Revision); err != nil {
		t.Fatal(err)
	}
	if code, out := repair("--check", "--from", file); code != 1 || !strings.Contains(out, "bucket jobs lacks 1 key\n") || !strings.Contains(out, ": 1 finding") {
		t.Errorf("a key lacks: exit %d: %s", code, out)
	}
	var admission conc.WaitGroup
	defer admission.Wait()
	admission.Go(func() {
		for range tick.Every(t.Context(), 50*time.Millisecond) {
			if errors.Is(b.bus.Whole(t.Context(), string(contract.Jobs)), bus.ErrPartial) {
				if err := b.bus.Folded(t.Context(), string(contract.Jobs)); err != nil {
					t.Error(err)
				}
				return
			}
		}
	})
	if code, out := repair("--from", file); code != 0 || !strings.Contains(out, "    1 record\n") || strings.Contains(out, "not whole") {
		t.Errorf("exit %d: %s", code, out)
	}
	if _, err := jobs.Get(t.Context(), "j1"); err != nil {
		t.Error(err)
	}
}
