package podlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/libs/joblog/epochs"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// received collects what was delivered, unless it is failing.
type received struct {
	away  bool
	words []string
}

var errAway = errors.New("away")

func (l *received) Overhear(_ context.Context, a train.Attempt, e epochs.Epoch, at time.Time) error {
	if l.away {
		return errAway
	}
	l.words = append(l.words, fmt.Sprintf("%s/%d epoch %d: %.1f s, accuracy %g, at %s", a.Job, a.Number, e.Epoch, e.Seconds, e.Metrics["accuracy"], at.Format(time.TimeOnly)))
	return nil
}

func (l *received) ReadOut(_ context.Context, a train.Attempt) error {
	if l.away {
		return errAway
	}
	l.words = append(l.words, fmt.Sprintf("%s/%d read", a.Job, a.Number))
	return nil
}

func (g *ground) wantReceived(want ...string) {
	g.t.Helper()
	if !slices.Equal(g.received.words, want) {
		g.t.Errorf("got\n%s\nwant\n%s", strings.Join(g.received.words, "\n"), strings.Join(want, "\n"))
	}
}

// newTelling is a fixture whose attempt reports its epochs in its output.
func newTelling(t rapid.TB, dir string) *ground {
	g := newGround(t, dir)
	g.attempts[0].LogFormat, g.attempts[0].StartedAt = train.LogBigDL, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return g
}

// epochLines is what BigDL writes for an epoch of one iteration, which takes a second and a half.
func epochLines(epoch int) []string {
	where := fmt.Sprintf("2020-03-31 16:08:00 INFO  DistriOptimizer$:408 - [Epoch %[1]d 8/8][Iteration %[1]d][Wall Clock 1s] ", epoch)
	return []string{
		where + "Trained 8 records in 1 seconds. Throughput is 8 records/second. Loss is 0.5. x",
		where + fmt.Sprintf("Epoch finished. Wall clock time is %d ms", 1500*epoch),
		where + fmt.Sprintf("Top1Accuracy is Accuracy(correct: 1, count: 2, accuracy: 0.%d)", epoch),
	}
}

func epochsOf(attempt, epoch int) string {
	return fmt.Sprintf("j1/%d epoch %d: 1.5 s, accuracy 0.%d, at 03:04:05", attempt, epoch, epoch)
}

// full are lines as the runtime writes them.
func full(stream string, lines []string) []string {
	var written []string
	for _, l := range lines {
		written = append(written, stream+" F "+l+"\n")
	}
	return written
}

func TestEpochsInTheOutputOfAPod(t *testing.T) {
	g := newTelling(t, t.TempDir())
	g.attempts[0].Devices = []train.DeviceID{"gpu:0", "gpu:1"}
	tail := g.tailer()
	g.write("j1-1-0", "0.log", full("stdout", epochLines(1))...)
	// No epochs are read from the other ranks.
	g.write("j1-1-1", "0.log", full("stdout", append(epochLines(1), epochLines(2)...))...)
	g.write("j1-1-0", "../mesh/0.log", "stdout F a container that another component has put beside it\n")
	tail.Poll(g.ctx())
	g.wantReceived()
	second := epochLines(2)
	g.write("j1-1-0", "0.log", "stderr P "+second[0][:40]+"\n", "stdout F in between\n", "stderr F "+second[0][40:]+"\n")
	tail.Poll(g.ctx())
	g.wantReceived(epochsOf(1, 1))
	g.write("j1-1-0", "0.log", full("stderr", second[1:])...)
	g.attempts[0].Phase = train.PhaseExited
	g.received.away = true
	tail.Poll(g.ctx())
	g.wantReceived(epochsOf(1, 1))
	g.received.away = false
	for range 2 {
		tail.Poll(g.ctx())
	}
	g.wantReceived(epochsOf(1, 1), epochsOf(1, 2), "j1/1 read")
	// The next attempt counts from 1, and its log is read from the start.
	g.attempts[0].Number, g.attempts[0].Phase = 2, train.PhaseRunning
	g.write("j1-2-0", "0.log", full("stdout", append(epochLines(1), epochLines(2)...))...)
	tail.Poll(g.ctx())
	g.wantReceived(epochsOf(1, 1), epochsOf(1, 2), "j1/1 read", epochsOf(2, 1))
}

// The epochs of an attempt are not delivered if its home is elsewhere, if its code calls itself, or if its outcome is
// decided.
func TestWhoseEpochsAreNotRead(t *testing.T) {
	for name, change := range map[string]func(*train.Attempt){
		"calls itself":   func(a *train.Attempt) { a.LogFormat = "" },
		"home elsewhere": func(a *train.Attempt) { a.Node = "n2" },
		"decided on":     func(a *train.Attempt) { a.Phase, a.Outcome = train.PhaseExited, train.OutcomeRecovering },
	} {
		t.Run(name, func(t *testing.T) {
			g := newTelling(t, t.TempDir())
			change(&g.attempts[0])
			tail := g.tailer()
			g.write("j1-1-0", "0.log", full("stdout", append(epochLines(1), epochLines(2)...))...)
			tail.Poll(g.ctx())
			g.attempts[0].Phase = train.PhaseExited
			tail.Poll(g.ctx())
			g.wantReceived()
		})
	}
}

// An outcome that was decided before the agent was back does not change any more.
func TestLateEpochsAreNotDelivered(t *testing.T) {
	g := newTelling(t, t.TempDir())
	g.received.away = true
	tail := g.tailer()
	path := g.write("j1-1-0", "0.log", full("stdout", append(epochLines(1), epochLines(2)...))...)
	tail.Poll(g.ctx())
	g.attempts[0].Phase, g.attempts[0].Outcome, g.received.away = train.PhaseExited, train.OutcomeSucceeded, false
	if err := os.RemoveAll(filepath.Dir(filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	tail.Poll(g.ctx())
	g.wantReceived()
	if len(tail.jobs) != 0 {
		t.Error("files of a pod that is gone stay open")
	}
}

// An agent that is killed before another line follows the epoch's last one reports when that line was written, not
// when it was read.
func TestAKilledAgentKnowsWhenTheLastLineWasWritten(t *testing.T) {
	g := newTelling(t, t.TempDir())
	g.write("j1-1-0", "0.log", full("stdout", epochLines(1))...)
	g.tailer().Poll(g.ctx())
	g.attempts[0].Phase = train.PhaseExited
	g.tailer().Poll(g.ctx())
	g.wantReceived(epochsOf(1, 1), "j1/1 read")
}

// State without a time gets the time at which the next agent begins to read.
func TestStateWithoutATime(t *testing.T) {
	before := time.Now()
	r, err := newEpochReader(train.LogBigDL, readerState{})
	if err != nil || r.at.Before(before) || r.at.After(time.Now()) {
		t.Errorf("reads at %v, begun at %v: %v", r.at, before, err)
	}
}

// Whenever agents are killed, each epoch is delivered, and a repeated one is identical. No epoch is pending when the
// output is reported as read.
func TestKilledAgentsDeliverEveryEpoch(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		g := newTelling(t, filepath.Join(dir, fmt.Sprint(n)))
		tail := g.tailer()
		var lines []string
		epochs := rapid.IntRange(1, 6).Draw(t, "epochs")
		for e := range epochs {
			lines = append(lines, epochLines(e+1)...)
		}
		rotations := 0
		path := g.write("j1-1-0", "0.log")
		for len(lines) > 0 {
			switch rapid.SampledFrom([]string{"write", "write", "write", "poll", "poll", "kill", "unkept", "rotate", "away"}).Draw(t, "step") {
			case "write":
				count := rapid.IntRange(1, len(lines)).Draw(t, "lines")
				g.write("j1-1-0", "0.log", full("stdout", lines[:count])...)
				lines = lines[count:]
			case "poll":
				tail.Poll(g.ctx())
			case "kill":
				tail = g.tailer()
			case "unkept": // killed after delivering, and before the state was stored
				kept, err := os.ReadFile(filepath.Join(g.layout.Job("j1"), "pods.json"))
				tail.Poll(g.ctx())
				if err == nil {
					err = os.WriteFile(filepath.Join(g.layout.Job("j1"), "pods.json"), kept, 0o600)
				}
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				tail = g.tailer()
			case "rotate":
				tail.Poll(g.ctx()) // a kubelet rotates far less often than an agent polls
				rotations++
				if err := os.Rename(path, fmt.Sprintf("%s.2026010%d-000000", path, rotations)); err != nil {
					t.Fatal(err)
				}
				g.write("j1-1-0", "0.log")
			case "away":
				g.received.away = !g.received.away
			}
		}
		g.received.away, g.attempts[0].Phase = false, train.PhaseExited
		tail.Poll(g.ctx())
		var once []string
		for _, words := range g.received.words {
			if !slices.Contains(once, words) {
				once = append(once, words)
			}
		}
		want := []string{}
		for e := range epochs {
			want = append(want, epochsOf(1, e+1))
		}
		if want = append(want, "j1/1 read"); !slices.Equal(once, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(once, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A poll of as many pods as a node has, each of which has just ended an epoch of sixty lines.
func BenchmarkPoll(b *testing.B) {
	const pods, lines = 250, 60
	g := newTelling(b, b.TempDir())
	one := g.attempts[0]
	g.attempts = nil
	for i := range pods {
		one.Job = train.JobID(fmt.Sprintf("j%d", i))
		g.attempts = append(g.attempts, one)
	}
	tail, epoch := g.tailer(), 0
	for b.Loop() {
		b.StopTimer()
		epoch++
		text := full("stdout", slices.Concat(epochLines(epoch)[1:], slices.Repeat(epochLines(epoch)[:1], lines-2)))
		for i := range pods {
			g.write(fmt.Sprintf("j%d-1-0", i), "0.log", text...)
		}
		b.StartTimer()
		tail.Poll(g.ctx())
	}
	b.ReportMetric(float64(len(g.received.words))/float64(pods), "epochs/pod")
}
