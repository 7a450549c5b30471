package jobs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// writer is the image of a program that reports its epochs only in its output.
const writer = "localhost/switchyard/bigdl:test"

// epochFacts returns the stored facts about the epochs of a job and its end, in order.
func (y *yard) epochFacts(id train.JobID, since time.Time) []string {
	y.t.Helper()
	var published []string
	subjects := []string{event.JobSubject(id, event.FactEpochEnded).String(), event.JobSubject(id, event.FactSucceeded).String()}
	y.must(y.bus.Stored(y.ctx, event.StreamJobs, subjects, since, func(m bus.Message) {
		if m.Parsed.Fact == event.FactSucceeded {
			published = append(published, "succeeded")
			return
		}
		e, err := event.Decode[event.EpochEnded](m.Data)
		y.must(err)
		published = append(published, fmt.Sprintf("%d: %d step, accuracy %g", e.EpochsDone, e.Steps, e.Metrics["accuracy"]))
	}))
	return published
}

// Programs that only write a log: their epochs are read where their pods run, each is published once, and all before
// the job's end, whichever process is killed meanwhile.
func TestTheOutputOfPodsIsRead(t *testing.T) {
	began := time.Now()
	y := newYard(t)
	y.must(cluster.Image(y.ctx, writer, filepath.Join(y.dir, "bigdl"), "./bigdl"))
	write := func(epochs int, words ...string) func(*train.Spec) {
		return func(s *train.Spec) {
			s.Image, s.MaxDevices, s.LogFormat = writer, 1, train.LogBigDL
			s.Command = append([]string{"/bigdl", "-epochs", fmt.Sprint(epochs)}, words...)
		}
	}
	want := func(id train.JobID, epochs int) {
		t.Helper()
		y.state(id, train.StateSucceeded)
		var all []string
		for e := range epochs {
			all = append(all, fmt.Sprintf("%d: 1 step, accuracy %g", e+1, float64(e+1)/1000))
		}
		if published := y.epochFacts(id, began); !slices.Equal(published, append(all, "succeeded")) {
			t.Errorf("job %s: published\n%s", id, strings.Join(published, "\n"))
		}
	}
	y.submit("slow", 60, 1, write(60, "-epoch", "500ms"))
	y.submit("quick", 5, 1, write(5, "-before", "4s"))
	y.plan(on("slow", "gpu:0"), on("quick", "gpu:1"))

	// The agent is away while one of them writes all its output, and ends.
	y.running("quick", 1)
	y.kill("nodeagent")
	y.attempt("quick", "exited", func(a train.Attempt) bool { return a.Phase == train.PhaseExited })
	y.start("nodeagent")
	want("quick", 5)

	for range 4 {
		done := y.state("slow", train.StateRunning).EpochsDone
		y.kill("nodeagent")
		y.start("nodeagent")
		y.job("slow", "another epoch", epochs(done+1))
	}
	y.kill("executor")
	y.start("executor")
	want("slow", 60)
	y.nothingLeft()
}
