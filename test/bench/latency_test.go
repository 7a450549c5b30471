// Package bench measures the time of a job from message to process, compared with the bare round trip of the bus on the
// same machine in the same minute.
package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission"
	"github.com/switchyard-dl/switchyard/services/energy"
	"github.com/switchyard-dl/switchyard/services/executor"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/supervisor"
	"github.com/switchyard-dl/switchyard/services/nodeagent"
	"github.com/switchyard-dl/switchyard/services/planner"
	"github.com/switchyard-dl/switchyard/services/profiler"
)

func TestMain(m *testing.M) {
	if options := os.Getenv(agentsVariable); options != "" {
		os.Exit(playAgents(options))
	}
	if options := os.Getenv(watchersVariable); options != "" {
		os.Exit(playWatchers(options))
	}
	supervisor.RunIfAsked(os.Args)
	os.Exit(m.Run())
}

// installSupervisor builds the supervisor beside this program, where the executor looks for it.
func installSupervisor(b *testing.B) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	build := exec.CommandContext(b.Context(), "go", "build", "-ldflags", "-s -w", "-o", filepath.Join(filepath.Dir(self), attempt.SupervisorName), "../../cmd/switchyard-supervisor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
}

// up runs the services in this process for the length of the benchmark.
func up(b *testing.B, url string, keys identity.Keys) {
	b.Helper()
	installSupervisor(b)
	c, err := settings.Of("--nats", url, "--keys", string(keys), "--data-dir", b.TempDir(), "--device-kind=cpu", "--cpu-slots=2")
	if err != nil {
		b.Fatal(err)
	}
	together(b, c.Common, admission.New(c.Admission), planner.New(c.Planner), profiler.New(c.Profiler), executor.New(c.Executor), nodeagent.New(c.NodeAgent), energy.New(c.Energy))
}

// together runs services until the benchmark ends.
func together(b *testing.B, common run.Common, services ...run.Service) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	running := pool.New().WithErrors()
	running.Go(func() error { return run.Together(ctx, common, io.Discard, func(net.Addr) {}, services...) })
	b.Cleanup(func() {
		stop()
		if err := running.Wait(); err != nil {
			b.Error(err)
		}
	})
}

// moments are the times at which a follower saw a job's facts.
type moments struct {
	facts chan bus.Message
}

func follow(b *testing.B, conn *bus.Bus, stream string) moments {
	b.Helper()
	m := moments{facts: make(chan bus.Message, 1000)}
	ctx, stop := context.WithCancel(b.Context())
	running := pool.New()
	running.Go(func() {
		_ = conn.Follow(ctx, stream, nil, 1, func(x bus.Message) {
			select {
			case m.facts <- x:
			case <-ctx.Done(): // nobody reads any more
			}
		})
	})
	b.Cleanup(func() { stop(); running.Wait() })
	return m
}

// await returns the time at which the fact of the job was seen.
func (m moments) await(b *testing.B, id train.JobID, fact string) time.Time {
	b.Helper()
	m.next(b, id, fact)
	return time.Now()
}

// next returns the next such fact.
func (m moments) next(b *testing.B, id train.JobID, fact string) bus.Message {
	b.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case x := <-m.facts:
			if x.Parsed.ID == string(id) && x.Parsed.Fact == fact {
				return x
			}
		case <-timeout:
			b.Fatalf("no fact %s of job %s in 30 s", fact, id)
		}
	}
}

const quiet = 150 * time.Millisecond

// median sorts what it is given.
func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkSubmissionToProcess reports medians: the bare round trip of the bus (a synced publish until a follower sees
// it), from publish to `admitted`, from there until the process ran and until `started`, the facts seen by the same
// follower, and the ratios of these to the round trip.
func BenchmarkSubmissionToProcess(b *testing.B) {
	server, keys := bustest.StartGuarded(b)
	conn := bustest.ConnectWith(b, bus.Config{URL: server.URL(), Keys: string(keys), Name: "cli"})
	up(b, server.URL(), keys)
	m := follow(b, conn, event.StreamJobs)
	poison := follow(b, conn, event.StreamPoison)
	pause := time.Duration(number(b, "QUIET_MS", "150")) * time.Millisecond
	var bare, admitted, runs, started []time.Duration
	for i := 0; b.Loop(); i++ {
		id := train.JobID(fmt.Sprintf("job-%d", i))
		at := time.Now()
		fact := event.Fact{Subject: event.Subject{Entity: "poison", ID: string(id), Fact: event.FactSetAside, Version: 1}, Key: "bench/" + string(id), Body: event.Poisoned{}}
		if err := conn.Publish(b.Context(), fact); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, poison.await(b, id, event.FactSetAside).Sub(at))
		spec := train.Spec{Name: "true", Command: []string{"true"}, BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 1}
		at = time.Now()
		if err := conn.Publish(b.Context(), event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})); err != nil {
			b.Fatal(err)
		}
		in := m.await(b, id, event.FactAdmitted)
		ran := m.next(b, id, event.FactStarted).Time
		on := time.Now()
		admitted, runs, started = append(admitted, in.Sub(at)), append(runs, ran.Sub(in)), append(started, on.Sub(in))
		m.await(b, id, event.FactSucceeded)
		<-time.After(pause) // the planner gathers changes in quick succession: here a job comes alone
	}
	base := median(bare)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(ms(base), "bare-ms")
	b.ReportMetric(ms(median(admitted)), "admitted-ms")
	b.ReportMetric(ms(median(runs)), "runs-ms")
	b.ReportMetric(ms(runs[len(runs)*99/100]), "runs-p99-ms")
	b.ReportMetric(ms(median(started)), "started-ms")
	b.ReportMetric(ms(started[len(started)*99/100]), "started-p99-ms")
	b.ReportMetric(float64(median(admitted))/float64(base), "admitted/bare")
	b.ReportMetric(float64(median(started))/float64(base), "started/bare")
	b.ReportMetric(0, "ns/op")
}
