package local

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/screen"
)

// hungUp is the status of a shell that has lost its terminal.
const hungUp = 128 + int(unix.SIGHUP)

// A shell that nobody looks at, or types into, ends and says why.
func TestAShellWithoutATerminalEnds(t *testing.T) {
	b := newBench(t)
	for want, shell := range map[string]screen.Shell{"NoTerminal": {LingerMillis: 1}, "Idle": {Keep: true, IdleMillis: 1}} {
		l := b.launch(train.JobID(want), []string{"cat"})
		l.Shell = &shell
		b.start(l)
		if e := b.phase(train.JobID(want), launch.Exited).Exit; e.Reason.Code != want || e.Code != hungUp {
			t.Errorf("%s: exit %+v", want, e)
		}
	}
}

// said reads what a terminal shows until its program has ended, and returns its status.
func (b *bench) said(job train.JobID, command ...string) (string, int) {
	b.t.Helper()
	c, err := b.DialTerminal(rpc.TerminalRequest{Job: job, Command: command, Term: "vt100", Size: rpc.TerminalSize{Columns: 77, Rows: 11}}, 1)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(3 * time.Minute))
	var text strings.Builder
	packet := make([]byte, 2*rpc.TerminalPacketSize)
	for {
		n, err := c.Read(packet)
		if err != nil || n == 0 {
			b.t.Fatalf("after %q: %v", text.String(), err)
		}
		if packet[0] == rpc.TerminalExit {
			var status int
			if err := json.Unmarshal(packet[1:n], &status); err != nil {
				b.t.Fatal(err)
			}
			return text.String(), status
		}
		text.Write(packet[1:n])
	}
}

// What runs beside a job has its folder, its environment and a terminal, and decides nothing about the job.
func TestATerminalBesideAJob(t *testing.T) {
	b := newBench(t)
	l := b.launch("j", sh("echo begun; exec sleep 1000"))
	l.Beside = l.Processes[0]
	l.Beside.Args = nil
	b.start(l)
	b.phase("j", launch.Running)
	// The size may be set a moment after the program has started.
	text, status := b.said("j", "sh", "-c", `until [ "$(stty size)" = "11 77" ]; do :; done; echo "$TERM at $PWD by $DIR"; stty size; exit 4`)
	if want := "vt100 at " + b.DataDir + " by " + b.DataDir + "\r\n11 77\r\n"; text != want || status != 4 {
		t.Errorf("status %d, %q, want 4, %q", status, text, want)
	}
	if text, status := b.said("j", "no-such-program"); status == 0 || !strings.Contains(text, "command not found: no-such-program") {
		t.Errorf("status %d, %q", status, text)
	}
	if s := b.phase("j", launch.Running); s.Phase != launch.Running {
		t.Errorf("the job is %+v", s)
	}
}
