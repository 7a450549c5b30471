package podlog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/joblog"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// ground is a node's folders.
type ground struct {
	t        rapid.TB
	root     string
	layout   installation.Layout
	attempts []train.Attempt
	received received
}

func newGround(t rapid.TB, dir string) *ground {
	return &ground{
		t: t, root: filepath.Join(dir, "pods"), layout: installation.Layout{DataDir: dir},
		attempts: []train.Attempt{{Job: "j1", Number: 1, Namespace: "jobs", Phase: train.PhaseRunning, Node: "n1", Devices: []train.DeviceID{"gpu:0"}}},
	}
}

func (g *ground) tailer() *Tailer {
	return New(Config{
		Root: g.root, Layout: g.layout, LimitBytes: joblog.MinLimit, Log: slog.New(slog.DiscardHandler),
		Attempts: func() []train.Attempt { return g.attempts }, Node: "n1", Receiver: &g.received,
	})
}

func (g *ground) ctx() context.Context { return context.Background() }

// write appends lines to the log of a pod's container.
func (g *ground) write(pod, name string, lines ...string) string {
	g.t.Helper()
	path := filepath.Join(g.root, "jobs_"+pod+"_uid-"+pod, "main", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		g.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		g.t.Fatal(err)
	}
	defer f.Close()
	for _, l := range lines {
		if _, err := f.WriteString("2026-01-02T03:04:05.678901234Z " + l); err != nil {
			g.t.Fatal(err)
		}
	}
	return path
}

func (g *ground) want(t *Tailer, job train.JobID, want ...string) {
	g.t.Helper()
	data, err := os.ReadFile(g.layout.Output(job))
	if err != nil && len(want) > 0 {
		g.t.Fatal(err)
	}
	if got := string(data); got != strings.Join(want, "") {
		g.t.Errorf("log\n%s\nwant\n%s", got, strings.Join(want, ""))
	}
}

const header = "[switchyard: attempt 1 of j1 on gpu:0, 2026-01-02T03:04:05Z]\n"

// A fault is logged once for as long as it lasts, wherever it is, and again when it has come back.
func TestALastingFaultIsLoggedOnce(t *testing.T) {
	g := newTelling(t, t.TempDir())
	tail := g.tailer()
	var lastFaults bytes.Buffer
	tail.config.Log = slog.New(slog.NewTextHandler(&lastFaults, nil))
	want := func(lines int) {
		t.Helper()
		if got := strings.Count(lastFaults.String(), "\n"); got != lines {
			t.Errorf("logged %d times, want %d:\n%s", got, lines, lastFaults.String())
		}
	}
	g.received.away = true
	g.write("j1-1-0", "0.log", full("stdout", append(epochLines(1), epochLines(2)[0]))...)
	for range 3 {
		tail.Poll(g.ctx())
	}
	want(1)
	g.received.away = false
	tail.Poll(g.ctx())
	want(1)
	g.received.away, g.attempts[0].Phase = true, train.PhaseExited // the end of its output cannot be reported either
	for range 3 {
		tail.Poll(g.ctx())
	}
	want(2)
}

func TestLinesOfAPod(t *testing.T) {
	g := newGround(t, t.TempDir())
	g.attempts[0].Devices = []train.DeviceID{"gpu:0", "gpu:1"}
	header := strings.Replace(header, "gpu:0", "gpu:0,gpu:1", 1)
	tail := g.tailer()
	tail.Poll(g.ctx()) // before the kubelet has made the folder
	g.write("j1-1-0", "0.log", "stdout F one\n", "stderr F oh\n", "stdout P half \n", "this is no line of a container\n")
	g.write("j2-1-0", "0.log", "stdout F of a job that is not known\n")
	g.write("j1-2-0", "0.log", "stdout F of an attempt that is not known\n")
	g.write("j1-1", "0.log", "stdout F of no rank\n")
	tail.Poll(g.ctx())
	g.want(tail, "j1", header, "one\n", "oh\n")
	g.write("j1-1-0", "0.log", "stdout P of \n", "stderr F in between\n", "stdout F two\n", "stdout F:x with a tag\n", "stdout F \n")
	g.write("j1-1-1", "0.log", "stdout F another rank\n")
	tail.Poll(g.ctx())
	g.want(tail, "j1", header, "one\n", "oh\n", "in between\n", "half of two\n", "with a tag\n", "\n", "[1] another rank\n")
	if _, err := os.Stat(g.layout.Job("j2")); err == nil {
		t.Error("a pod of no job made a job")
	}
	if chunk, err := tail.Answer(rpc.LogRequest{Job: "j1", Offset: -17}, false); err != nil || string(chunk.Data) != "[1] another rank\n" {
		t.Errorf("%q, error %v", chunk.Data, err)
	}
}

func TestALogSurvivesItsPod(t *testing.T) {
	g := newGround(t, t.TempDir())
	tail := g.tailer()
	path := g.write("j1-1-0", "0.log", "stdout F first\n")
	tail.Poll(g.ctx())
	// What was written after the last poll and before the removal is there, even a last line without an end.
	g.write("j1-1-0", "0.log", "stdout F second\n", "stdout P no end\n")
	if err := os.RemoveAll(filepath.Dir(filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	tail.Poll(g.ctx())
	g.want(tail, "j1", header, "first\n", "second\n", "no end\n")
	if len(tail.jobs) != 0 {
		t.Error("files of a pod that is gone stay open")
	}
	g.attempts[0].Number = 2
	g.write("j1-2-0", "0.log", "stdout F again\n")
	tail.Poll(g.ctx())
	g.want(tail, "j1", header, "first\n", "second\n", "no end\n", strings.Replace(header, "attempt 1", "attempt 2", 1), "again\n")
}

func TestTheEndOfAnAttemptEndsItsLastLine(t *testing.T) {
	g := newGround(t, t.TempDir())
	tail := g.tailer()
	g.write("j1-1-0", "0.log", "stdout P no end\n")
	tail.Poll(g.ctx())
	g.want(tail, "j1", header)
	g.attempts[0].Phase = train.PhaseExited
	tail.Poll(g.ctx())
	g.want(tail, "j1", header, "no end\n")
}

func TestRotation(t *testing.T) {
	g := newGround(t, t.TempDir())
	tail := g.tailer()
	path := g.write("j1-1-0", "0.log", "stdout F one\n")
	tail.Poll(g.ctx())
	g.write("j1-1-0", "0.log", "stdout F two\n")
	if err := os.Rename(path, path+".20260102-030405"); err != nil {
		t.Fatal(err)
	}
	tail.Poll(g.ctx()) // no new file yet
	g.write("j1-1-0", "0.log.20260102-030405", "stdout F three\n")
	g.write("j1-1-0", "0.log", "stdout F four\n")
	tail.Poll(g.ctx())
	g.want(tail, "j1", header, "one\n", "two\n", "three\n", "four\n")
	// An agent that starts after a rotation continues where the previous one stopped, in the renamed file.
	g.write("j1-1-0", "0.log", "stdout F five\n")
	if err := os.Rename(path, path+".20260102-040506"); err != nil {
		t.Fatal(err)
	}
	g.write("j1-1-0", "0.log", "stdout F six\n")
	tail.close()
	g.tailer().Poll(g.ctx())
	g.want(tail, "j1", header, "one\n", "two\n", "three\n", "four\n", "five\n", "six\n")
}

func TestAFloodStaysBounded(t *testing.T) {
	g := newGround(t, t.TempDir())
	tail := g.tailer()
	lines := slices.Repeat([]string{"stdout F " + strings.Repeat("x", 99) + "\n"}, 10_000)
	g.write("j1-1-0", "0.log", lines...)
	g.write("j1-1-0", "0.log", "stdout F last\n")
	tail.Poll(g.ctx())
	data, err := os.ReadFile(g.layout.Output("j1"))
	if err != nil || len(data) > joblog.MinLimit || !strings.HasPrefix(string(data), header) || !strings.HasSuffix(string(data), "x\nlast\n") {
		t.Errorf("log of %d bytes, error %v", len(data), err)
	}
	chunk, err := tail.Answer(rpc.LogRequest{Job: "j1"}, false)
	if err != nil || chunk.Size != int64(len(header)+10_000*100+len("last\n")) {
		t.Errorf("size %d, error %v", chunk.Size, err)
	}
}

// Whenever agents are killed, each line arrives once and in order.
func TestKilledAgentsLoseAndRepeatNothing(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		g := newGround(t, filepath.Join(dir, fmt.Sprint(n)))
		tail := g.tailer()
		written := []string{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"write", "write", "poll", "kill", "half"}).Draw(t, "step") {
			case "write":
				text := fmt.Sprintf("line %d", len(written))
				written = append(written, text)
				if rapid.Bool().Draw(t, "in two") {
					g.write("j1-1-0", "0.log", "stdout P "+text[:3]+"\n")
					tail.Poll(g.ctx())
					g.write("j1-1-0", "0.log", "stdout F "+text[3:]+"\n")
				} else {
					g.write("j1-1-0", "0.log", "stderr F "+text+"\n")
				}
			case "poll":
				tail.Poll(g.ctx())
			case "kill": // nothing is closed, nothing is stored
				tail = g.tailer()
			case "half": // killed between copying and storing
				p, _ := parseFolder("jobs_j1-1-0_uid-j1-1-0", slugs(g.attempts))
				for _, path := range logFiles(filepath.Join(g.root, p.folder)) {
					if err := tail.find(p, path, g.attempts[0]); err != nil {
						t.Fatal(err)
					}
					l := tail.jobs["j1"]
					for _, s := range l.sources {
						if err := s.read(func(first line) { l.begin(p, first.at, g.attempts[0]) }); err != nil {
							t.Fatal(err)
						}
					}
				}
				tail = g.tailer()
			}
		}
		tail.Poll(g.ctx())
		if len(written) > 0 {
			g.want(tail, "j1", header, strings.Join(written, "\n"), "\n")
		}
	})
}

func TestFolders(t *testing.T) {
	known := slugs([]train.Attempt{
		{Job: "Bert_1", Number: 3, Namespace: "jobs"},
		{Job: "a-1", Number: 1, Namespace: "jobs"},
		{Job: "gang", Number: 2, Namespace: "jobs", Devices: []train.DeviceID{"gpu:0", "gpu:1"}, ServerCount: 1},
	})
	bert := strings.TrimSuffix(train.PodName("Bert_1", 2, 11), "-2-11")
	for folder, want := range map[string]pod{
		"jobs_" + bert + "-2-11_u":      {job: "Bert_1", attempt: 2, rank: 11, uid: "u"},
		"jobs_a-1-1-0_u":                {job: "a-1", attempt: 1, uid: "u"},
		"jobs_gang-2-3_u":               {job: "gang", attempt: 2, rank: 3, uid: "u"},
		"jobs_gang-2-4_u":               {},
		"jobs_a-1-1-1_u":                {},
		"other_a-1-1-0_u":               {},
		"jobs_a-1-0_u":                  {},
		"jobs_a-1-2-0_u":                {},
		"jobs_a-1-1-x_u":                {},
		"jobs_-1-1_u":                   {},
		"jobs_a-1-1-0":                  {},
		"jobs_a-1-1-0_u_v":              {},
		"jobs_Bert_1-2-11_u":            {},
		"jobs_" + bert + "--2--11_u":    {},
		"jobs_" + bert + "-2-999999999": {},
	} {
		got, ok := parseFolder(folder, known)
		want.folder = got.folder
		if got != want || ok != (want.job != "") {
			t.Errorf("%s: %+v, want %+v", folder, got, want)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	for _, seed := range []string{"2026-01-02T03:04:05.678901234Z stdout F text", "t stderr P", "t stderr P ", "t stdin F x", "", "   ", "t stdout F:a:b  two spaces"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, ok := parseLine(raw)
		if !ok {
			return
		}
		stream, tag := "stdout", "F"
		if l.stderr {
			stream = "stderr"
		}
		if l.partial {
			tag = "P"
		}
		if !strings.HasPrefix(string(raw), l.at+" "+stream+" "+tag) || !strings.HasSuffix(string(raw), " "+string(l.text)) {
			t.Errorf("%q became %+v", raw, l)
		}
	})
}
