package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// shelf answers for an executor: it gives the output in small pieces.
type shelf struct {
	mu     sync.Mutex
	output []byte
	piece  int
	ended  bool
	// asked is called before each answer, with how often it was asked before.
	asked func(s *shelf, times int)
	times int
	err   error
}

func (s *shelf) answer(_ context.Context, r train.LogRequest) (train.LogChunk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked != nil {
		s.asked(s, s.times)
	}
	s.times++
	if s.err != nil {
		return train.LogChunk{}, s.err
	}
	size := int64(len(s.output))
	from := r.Offset
	if from < 0 {
		from = max(size+from, 0)
	}
	from = min(from, size)
	to := min(from+int64(s.piece), size)
	return train.LogChunk{Data: s.output[from:to], Next: to, Size: size, Ended: s.ended && to == size}, nil
}

// serve runs the shelf as the executor of a node for the length of the test.
func (s *shelf) serve(t *testing.T, b *bus.Bus, node train.NodeID) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var serving conc.WaitGroup
	serving.Go(func() { _ = bus.Answer(ctx, b, train.LogSubject(node), s.answer) })
	t.Cleanup(func() {
		stop()
		serving.Wait()
	})
	// The subscription is there when the first question is answered.
	for {
		_, err := bus.Ask[train.LogRequest, train.LogChunk](t.Context(), b, train.LogSubject(node), train.LogRequest{Job: "probe"})
		if !errors.Is(err, bus.ErrAway) {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times = 0
}

func lines(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		_, _ = fmt.Fprintf(&b, "line %d ü\n", i)
	}
	return b.String()
}

func TestLogs(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	output := lines(9) + "\x1b[2Jlast"
	(&shelf{output: []byte(output), piece: 7, ended: true}).serve(t, s.bus, "gpu1")
	cases := []struct {
		name string
		args []string
		out  string
	}{
		{"everything", nil, lines(9) + `\x1b[2Jlast`},
		{"raw", []string{"--raw"}, output},
		{"the end", []string{"--tail", "2"}, "line 9 ü\n" + `\x1b[2Jlast`},
		{"more than there is", []string{"--tail", "100"}, lines(9) + `\x1b[2Jlast`},
		{"nothing of it", []string{"--tail", "0"}, ""},
		{"to the end of a finished job", []string{"-f", "--tail", "1"}, `\x1b[2Jlast`},
		{"as objects", []string{"-o", "json", "--tail", "2"}, `{"job":"vgg-0c","line":"line 9 ü"}` + "\n" + `{"job":"vgg-0c","line":"\u001b[2Jlast"}` + "\n"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			code, out, stderr := s.run(append([]string{"logs", "vgg"}, tc.args...)...)
			if code != ExitOK || out != tc.out {
				t.Fatalf("exit %d, %q, want %q; stderr %q", code, out, tc.out, stderr)
			}
		})
	}
	if code, _, stderr := s.run("logs", "vgg", "--raw", "-o", "json"); code != ExitUsage {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if code, out, stderr := s.run("logs", "bert"); code != ExitOK || out != "" || !strings.Contains(stderr, "has not started; it is queued (needs 4 devices") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
}

func TestLogsWithoutAnExecutor(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	code, out, stderr := s.run("logs", "vgg")
	if code != ExitUnreachable || !strings.HasPrefix(out, "epoch 2\n"+`\x1b]0;title\x07Traceback`+"\n") || !strings.HasSuffix(out, "done\n") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
	if !strings.Contains(stderr, "as the register has kept it") || !strings.Contains(stderr, "is not running") {
		t.Errorf("%q", stderr)
	}
	code, out, stderr = s.run("logs", "resnet")
	if code != ExitUnreachable || out != "" || !strings.Contains(stderr, "is not running") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
	(&shelf{err: errors.New("disk on fire")}).serve(t, s.bus, "gpu1")
	if code, _, stderr = s.run("logs", "resnet", "-f"); code != ExitError || !strings.Contains(stderr, "disk on fire") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// A followed job is shown to its end: through pauses in its output, and although the executor calls it ended before the register does.
func TestLogsAreFollowedToTheEnd(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	story := &shelf{piece: 5, asked: func(s2 *shelf, times int) {
		switch times {
		case 2, 6:
			s2.output = append(s2.output, lines(2)...)
		case 20:
			s2.ended = true
		case 22:
			s2.ended = false
		case 24:
			s2.output = append(s2.output, "the end"...)
			s2.ended = true
			j := resnet()
			j.State, j.Message, j.LastSequence = train.StateSucceeded, "40 epochs in 3.4 h", 1
			putJob(t, s.bus, j)
		}
	}}
	story.serve(t, s.bus, "gpu1")
	var out bytes.Buffer
	r := &logReader{bus: s.bus, job: resnet(), stderr: s.err, follow: true, poll: time.Millisecond, patience: askTimeout}
	if err := r.copy(t.Context(), &out, -1); err != nil {
		t.Fatal(err)
	}
	if want := lines(2) + lines(2) + "the end"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	if !strings.Contains(s.err.String(), "job resnet-4f2a succeeded: 40 epochs in 3.4 h") {
		t.Errorf("%q", s.err)
	}
}

// The bus may go away and come back while a job is followed: nothing is lost or shown twice.
func TestLogsAreFollowedThroughARestart(t *testing.T) {
	dir := t.TempDir()
	server, err := busserver.Start(busserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	port := server.Port()
	t.Cleanup(func() { server.Stop() })
	b := bustest.Connect(t, server, "test")
	putJob(t, b, resnet())
	put(t, b, event.BucketAttempts, "resnet-4f2a", train.Attempt{Job: "resnet-4f2a", Number: 2, Node: "gpu1", Phase: train.PhaseRunning})
	middle, again := make(chan struct{}), make(chan struct{})
	story := &shelf{piece: 5, output: []byte(lines(3)), asked: func(s *shelf, times int) {
		if times == 3 {
			close(middle)
		}
		select {
		case <-again:
			if !s.ended {
				s.output, s.ended = append(s.output, "the end\n"...), true
				j := resnet()
				j.State = train.StateSucceeded
				putJob(t, b, j)
			}
		default:
		}
	}}
	story.serve(t, b, "gpu1")
	var out, stderr bytes.Buffer
	reader := bustest.Connect(t, server, "cli")
	var following conc.WaitGroup
	following.Go(func() {
		r := &logReader{bus: reader, job: resnet(), stderr: &stderr, follow: true, poll: time.Millisecond, patience: time.Second}
		if err := r.copy(t.Context(), &out, -1); err != nil {
			t.Errorf("follow: %v", err)
		}
	})
	<-middle
	server.Stop()
	if server, err = busserver.Start(busserver.Options{Dir: dir, Port: port}); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, b)
	close(again)
	following.Wait()
	if want := lines(3) + "the end\n"; out.String() != want {
		t.Errorf("%q, want %q; %s", out.String(), want, stderr.String())
	}
}

// awaitReady waits until the connection is back and the store answers.
func awaitReady(t *testing.T, b *bus.Bus) {
	t.Helper()
	for t.Context().Err() == nil {
		if b.Ready() == nil {
			if _, found, err := getIfThere[train.Job](t.Context(), b, event.BucketJobs, "resnet-4f2a"); found && err == nil {
				return
			}
		}
	}
	t.Fatal("the bus does not come back")
}

// onWrite calls back at the first write.
type onWrite struct {
	bytes.Buffer
	once sync.Once
	do   func()
}

func (o *onWrite) Write(p []byte) (int, error) {
	o.once.Do(o.do)
	return o.Buffer.Write(p)
}

func TestLogsWaitForTheStart(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	story := &shelf{output: []byte("hello\n"), piece: 100, ended: true}
	story.serve(t, s.bus, "gpu1")
	var out bytes.Buffer
	said := &onWrite{do: func() {
		j := bert()
		j.State, j.Message = train.StateSucceeded, "done"
		putJob(t, s.bus, j)
		put(t, s.bus, event.BucketAttempts, "bert-91bc", train.Attempt{Job: "bert-91bc", Number: 1, Node: "gpu1"})
	}}
	r := &logReader{bus: s.bus, job: bert(), stderr: said, follow: true, poll: time.Millisecond, patience: askTimeout}
	if err := r.copy(t.Context(), &out, -1); err != nil {
		t.Fatal(err)
	}
	if out.String() != "hello\n" || !strings.HasPrefix(said.String(), "waiting for job bert-91bc to start; it is queued (needs 4 devices") {
		t.Errorf("%q, %q", out.String(), said.String())
	}
}

// A job that is cancelled before its start has no output, and nobody waits for it.
func TestLogsOfAJobThatNeverStarts(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	said := &onWrite{do: func() {
		j := bert()
		j.State, j.Message = train.StateCancelled, "ended as asked after 0 epochs"
		putJob(t, s.bus, j)
		put(t, s.bus, event.BucketAttempts, "bert-91bc", train.Attempt{Job: "bert-91bc", Outcome: train.OutcomeCancelled})
	}}
	r := &logReader{bus: s.bus, job: bert(), stderr: said, follow: true, poll: time.Millisecond, patience: askTimeout}
	if err := r.copy(t.Context(), &bytes.Buffer{}, -1); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "no output: job bert-91bc has not started; it is cancelled") {
		t.Error(said.String())
	}
}

func TestTheTailIsFoundInALongOutput(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	long := []byte(strings.Repeat(strings.Repeat("x", 999)+"\n", 200))
	story := &shelf{output: long, piece: 100 << 10, ended: true}
	story.serve(t, s.bus, "gpu1")
	for _, n := range []int{1, 3, 33, 150, 199, 200, 500} {
		r := &logReader{bus: s.bus, job: vgg(), stderr: s.err, node: "gpu1", patience: askTimeout}
		data, next, err := r.readTail(t.Context(), n)
		if want := min(n, 200) * 1000; err != nil || len(data) != want || next != int64(len(long)) {
			t.Errorf("%d lines: %d bytes up to %d, want %d; %v", n, len(data), next, want, err)
		}
	}
}

func TestLastLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab\n]{0,20}`).Draw(t, "text")
		n := rapid.IntRange(0, 6).Draw(t, "lines")
		all := strings.SplitAfter(text, "\n")
		if all[len(all)-1] == "" {
			all = all[:len(all)-1]
		}
		want := strings.Join(all[max(len(all)-n, 0):], "")
		got, enough := lastLines([]byte(text), n)
		if string(got) != want {
			t.Fatalf("the last %d lines of %q: %q, want %q", n, text, got, want)
		}
		if enough && len(all) < n {
			t.Fatalf("%q has no %d lines", text, n)
		}
	})
}

func TestLineEncoderCarriesAnyByte(t *testing.T) {
	s := newTerminal(t)
	s.output = "json"
	w := s.logWriter("x", false)
	raw, _ := base64.StdEncoding.DecodeString("/wBhCg==")
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	out, _ := s.printed()
	if line := parse[struct{ Line string }](t, out); line.Line != "\ufffd\x00a" {
		t.Errorf("%q", line.Line)
	}
}
