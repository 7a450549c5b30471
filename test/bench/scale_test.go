package bench

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// writers is how many goroutines publish and write side by side.
const writers = 64

// BenchmarkLongQueue submits SCALE_JOBS jobs (10,000) at once to a machine with two CPU slots. It reports how many are
// acknowledged and admitted a second, how long it takes until the register has folded every fact, and how long the
// cancellation of a running job takes meanwhile, beside the bare compare-and-swaps that the same bus does a second.
func BenchmarkLongQueue(b *testing.B) {
	jobs, err := strconv.Atoi(cmp.Or(os.Getenv("SCALE_JOBS"), "10000"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		server, keys := bustest.StartGuarded(b)
		conn := bustest.ConnectWith(b, bus.Config{URL: server.URL(), Keys: string(keys), Name: "cli"})
		swaps := bareSwaps(b, server.URL(), keys, 10000)
		up(b, server.URL(), keys)
		long := train.Spec{Name: "long", Command: untilRemoved(b.TempDir())}
		submit(b, conn, "running", long)
		seen := newSeen(b, conn)
		seen.await(event.FactStarted, 1)
		began := time.Now()
		submitAll(b, conn, jobs, func(int) train.Spec { return long })
		acknowledged := time.Since(began)
		at := time.Now()
		fact := event.Fact{Subject: event.JobSubject("running", event.FactCancelRequested), Key: "cancel", Body: event.CancelRequested{}}
		if err := conn.Publish(b.Context(), fact); err != nil {
			b.Fatal(err)
		}
		seen.await(event.FactCancelled, 1)
		cancelled := time.Since(at)
		seen.await(event.FactAdmitted, jobs+1)
		admitted := time.Since(began)
		seen.quiet(conn)
		b.ReportMetric(swaps, "bare-cas/s")
		b.ReportMetric(float64(jobs)/acknowledged.Seconds(), "acked/s")
		b.ReportMetric(float64(jobs)/admitted.Seconds(), "admitted/s")
		b.ReportMetric(float64(jobs)/admitted.Seconds()/swaps, "admitted/cas")
		b.ReportMetric(time.Since(began).Seconds(), "complete-s")
		b.ReportMetric(cancelled.Seconds(), "cancel-s")
		b.ReportMetric(0, "ns/op")
	}
}

// untilRemoved is the command of a job that ends when the folder is removed, as those of a benchmark are at its end.
func untilRemoved(dir string) []string {
	return []string{"sh", "-c", "while [ -d '" + dir + "' ]; do sleep 1; done"}
}

// submitAll submits n jobs side by side and returns when all are acknowledged.
func submitAll(b *testing.B, conn *bus.Bus, n int, spec func(i int) train.Spec) {
	b.Helper()
	side := pool.New().WithMaxGoroutines(writers)
	for i := range n {
		side.Go(func() { submit(b, conn, numbered(i), spec(i)) })
	}
	side.Wait()
}

func numbered(i int) train.JobID { return train.JobID(fmt.Sprintf("job-%06d", i)) }

func submit(b *testing.B, conn *bus.Bus, id train.JobID, spec train.Spec) {
	if err := conn.Publish(b.Context(), event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})); err != nil {
		b.Error(err)
	}
}

// bareSwaps is how many records a client of the bus writes a second by compare-and-swap, one message each, with as many
// writers and records as large as those of the jobs.
func bareSwaps(b *testing.B, url string, keys identity.Keys, n int) float64 {
	key, err := nats.NkeyOptionFromSeed(keys.File(identity.Operator))
	if err != nil {
		b.Fatal(err)
	}
	nc, err := nats.Connect(url, key)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	kv, err := js.CreateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "bare", Storage: jetstream.FileStorage})
	if err != nil {
		b.Fatal(err)
	}
	record := make([]byte, 1200)
	began := time.Now()
	side := pool.New().WithMaxGoroutines(writers)
	for i := range n {
		side.Go(func() {
			if _, err := kv.Create(b.Context(), fmt.Sprintf("bare-%05d", i), record); err != nil {
				b.Error(err)
			}
		})
	}
	side.Wait()
	return float64(n) / time.Since(began).Seconds()
}

// seen counts the facts about jobs.
type seen struct {
	b      *testing.B
	facts  moments
	counts map[string]int
}

func newSeen(b *testing.B, conn *bus.Bus) *seen {
	return &seen{b, follow(b, conn, event.StreamJobs), map[string]int{}}
}

// await returns as soon as there are as many facts of a name.
func (s *seen) await(fact string, n int) {
	s.b.Helper()
	const longest = 5 * time.Minute
	for s.counts[fact] < n {
		select {
		case m := <-s.facts.facts:
			s.counts[m.Parsed.Fact]++
		case <-time.After(longest):
			s.b.Fatalf("no fact in %s: there are %d facts %s of %d; all: %v", longest, s.counts[fact], fact, n, s.counts)
		}
	}
}

// quiet returns as soon as the register has folded all facts and no further ones come for a second.
func (s *seen) quiet(conn *bus.Bus) {
	s.b.Helper()
	for {
		select {
		case m := <-s.facts.facts:
			s.counts[m.Parsed.Fact]++
			continue
		case <-time.After(time.Second):
		}
		// The consumer is away for a moment whenever admission reads on after a pause.
		pending, err := conn.Pending(s.b.Context(), event.StreamJobs, "admission")
		if err == nil && pending == 0 {
			s.b.Log(s.counts)
			return
		}
	}
}
