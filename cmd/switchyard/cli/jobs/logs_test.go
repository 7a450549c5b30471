package jobs

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func lines(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "line %d ü\n", i)
	}
	return b.String()
}

func TestLogs(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	output := lines(9) + "\x1b[2Jlast"
	(&clitest.LogServer{Output: []byte(output), Piece: 7, Ended: true}).Serve(t, s.Bus, "gpu1")
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
			code, out, stderr := s.Run(append([]string{"logs", "vgg"}, tc.args...)...)
			if code != exit.OK || out != tc.out {
				t.Fatalf("exit %d, %q, want %q; stderr %q", code, out, tc.out, stderr)
			}
		})
	}
	if code, _, stderr := s.Run("logs", "vgg", "--raw", "-o", "json"); code != exit.Usage {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if code, out, stderr := s.Run("logs", "bert"); code != exit.OK || out != "" || !strings.Contains(stderr, "has not started; it is queued (needs 4 devices") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
}

func TestLogsWithoutAnExecutor(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	code, out, stderr := s.Run("logs", "vgg")
	if code != exit.Unreachable || !strings.HasPrefix(out, "epoch 2\n"+`\x1b]0;title\x07Traceback`+"\n") || !strings.HasSuffix(out, "done\n") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
	if !strings.Contains(stderr, "the end of the output, from the register") || !strings.Contains(stderr, "the executor of node gpu1 is not running") {
		t.Errorf("%q", stderr)
	}
	code, out, stderr = s.Run("logs", "resnet")
	if code != exit.Unreachable || out != "" || !strings.Contains(stderr, "the executor of node gpu1 is not running") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
	(&clitest.LogServer{Err: errors.New("disk on fire")}).Serve(t, s.Bus, "gpu1")
	if code, _, stderr = s.Run("logs", "resnet", "-f"); code != exit.Failed || !strings.Contains(stderr, "disk on fire") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// A followed job is shown to its end: through pauses in its output, and although the executor calls it ended before
// the register does.
func TestLogsAreFollowedToTheEnd(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	story := &clitest.LogServer{Piece: 5, Asked: func(s2 *clitest.LogServer, times int) {
		switch times {
		case 2, 6:
			s2.Output = append(s2.Output, lines(2)...)
		case 20:
			s2.Ended = true
		case 22:
			s2.Ended = false
		case 24:
			s2.Output = append(s2.Output, "the end"...)
			s2.Ended = true
			j := clitest.Resnet()
			j.State, j.Message, j.LastSequence = train.StateSucceeded, "40 epochs in 3.4 h", 1
			clitest.PutJob(t, s.Bus, j)
		}
	}}
	story.Serve(t, s.Bus, "gpu1")
	var out bytes.Buffer
	r := &logReader{yard: s.Yard(clitest.Noon), job: clitest.Resnet(), stderr: s.Err, follow: true, poll: time.Millisecond, patience: askTimeout}
	if err := r.copy(t.Context(), &out, -1); err != nil {
		t.Fatal(err)
	}
	if want := lines(2) + lines(2) + "the end"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	if !strings.Contains(s.Err.String(), "job resnet-4f2a succeeded: 40 epochs in 3.4 h") {
		t.Errorf("%q", s.Err)
	}
}

// The bus may go away and come back while a job is followed: nothing is lost or shown twice.
func TestLogsAreFollowedThroughARestart(t *testing.T) {
	dir := t.TempDir()
	server, err := busserver.Start(busserver.Options{Open: true, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	port := server.Port()
	t.Cleanup(func() { server.Stop() })
	b := bustest.Connect(t, server, "test")
	clitest.PutJob(t, b, clitest.Resnet())
	clitest.Put(t, b, contract.Attempts, "resnet-4f2a", train.Attempt{Job: "resnet-4f2a", Number: 2, Node: "gpu1", Phase: train.PhaseRunning})
	middle, again := make(chan struct{}), make(chan struct{})
	story := &clitest.LogServer{Piece: 5, Output: []byte(lines(3)), Asked: func(s *clitest.LogServer, times int) {
		if times == 3 {
			close(middle)
		}
		select {
		case <-again:
			if !s.Ended {
				s.Output, s.Ended = append(s.Output, "the end\n"...), true
				j := clitest.Resnet()
				j.State = train.StateSucceeded
				clitest.PutJob(t, b, j)
			}
		default:
		}
	}}
	story.Serve(t, b, "gpu1")
	var out, stderr bytes.Buffer
	reader := bustest.Connect(t, server, "cli")
	var following conc.WaitGroup
	following.Go(func() {
		r := &logReader{yard: console.OnBus(reader, time.Now), job: clitest.Resnet(), stderr: &stderr, follow: true, poll: time.Millisecond, patience: time.Second}
		if err := r.copy(t.Context(), &out, -1); err != nil {
			t.Errorf("follow: %v", err)
		}
	})
	<-middle
	server.Stop()
	if server, err = busserver.Start(busserver.Options{Open: true, Dir: dir, Port: port}); err != nil {
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
			if _, found, err := console.GetIfThere(t.Context(), b, contract.Jobs, "resnet-4f2a"); found && err == nil {
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
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	story := &clitest.LogServer{Output: []byte("hello\n"), Piece: 100, Ended: true}
	story.Serve(t, s.Bus, "gpu1")
	var out bytes.Buffer
	said := &onWrite{do: func() {
		j := clitest.Bert()
		j.State, j.Message = train.StateSucceeded, "done"
		clitest.PutJob(t, s.Bus, j)
		clitest.Put(t, s.Bus, contract.Attempts, "bert-91bc", train.Attempt{Job: "bert-91bc", Number: 1, Node: "gpu1"})
	}}
	r := &logReader{yard: s.Yard(clitest.Noon), job: clitest.Bert(), stderr: said, follow: true, poll: time.Millisecond, patience: askTimeout}
	if err := r.copy(t.Context(), &out, -1); err != nil {
		t.Fatal(err)
	}
	if out.String() != "hello\n" || !strings.HasPrefix(said.String(), "waiting for job bert-91bc to start; it is queued (needs 4 devices") {
		t.Errorf("%q, %q", out.String(), said.String())
	}
}

// A job that is cancelled before its start has no output, and nobody waits for it.
func TestLogsOfAJobThatNeverStarts(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	said := &onWrite{do: func() {
		j := clitest.Bert()
		j.State, j.Message = train.StateCancelled, "ended as asked after 0 epochs"
		clitest.PutJob(t, s.Bus, j)
		clitest.Put(t, s.Bus, contract.Attempts, "bert-91bc", train.Attempt{Job: "bert-91bc", Outcome: train.OutcomeCancelled})
	}}
	r := &logReader{yard: s.Yard(clitest.Noon), job: clitest.Bert(), stderr: said, follow: true, poll: time.Millisecond, patience: askTimeout}
	if err := r.copy(t.Context(), &bytes.Buffer{}, -1); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "no output: job bert-91bc has not started; it is cancelled") {
		t.Error(said.String())
	}
}

func TestTheTailIsFoundInALongOutput(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	long := []byte(strings.Repeat(strings.Repeat("x", 999)+"\n", 200))
	story := &clitest.LogServer{Output: long, Piece: 100 << 10, Ended: true}
	story.Serve(t, s.Bus, "gpu1")
	for _, n := range []int{1, 3, 33, 150, 199, 200, 500} {
		r := &logReader{yard: s.Yard(clitest.Noon), job: clitest.Vgg(), stderr: s.Err, node: "gpu1", patience: askTimeout}
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
	s := clitest.New(t, Commands()...)
	s.Output = "json"
	w := logWriter(s.Console, "x", false)
	raw, _ := base64.StdEncoding.DecodeString("/wBhCg==")
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	out, _ := s.Printed()
	if line := clitest.Parse[struct{ Line string }](t, out); line.Line != "\ufffd\x00a" {
		t.Errorf("%q", line.Line)
	}
}

// A second run under the id of a job shows what the first one wrote: it must not look like its own.
func TestARunOfAnIDThatWasUsedSaysWhoseOutputItShows(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	(&clitest.LogServer{Output: []byte("one\n"), Piece: 9, Ended: true}).Serve(t, s.Bus, "gpu1")
	const again = "job vgg-0c was submitted before, and is not run again: this is its output\n"
	for i, repeat := range []bool{false, true} {
		_, out, stderr := s.Run("run", "--id", "vgg-0c", "true")
		if out != "one\n" || strings.Contains(stderr, again) != repeat || !strings.Contains(stderr, "job vgg-0c") {
			t.Errorf("run %d: %q, %q", i, out, stderr)
		}
	}
}
