package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// door is an installation on a bus of its own, and a client that submits.
type door struct {
	conn              *bus.Bus
	facts             moments
	admitted, started []time.Duration
}

func open(b *testing.B, server *busserver.Server, keys identity.Keys) *door {
	b.Helper()
	conn := bustest.ConnectWith(b, bus.Config{URL: server.URL(), Keys: string(keys), Name: "cli"})
	up(b, server.URL(), keys)
	return &door{conn: conn, facts: follow(b, conn, event.StreamJobs)}
}

// submit runs a job, and waits until nothing happens any more.
func (d *door) submit(b *testing.B, id train.JobID) {
	b.Helper()
	spec := train.Spec{Name: "true", Command: []string{"true"}, BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 1}
	at := time.Now()
	if err := d.conn.Publish(b.Context(), event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})); err != nil {
		b.Fatal(err)
	}
	in := d.facts.await(b, id, event.FactAdmitted)
	on := d.facts.await(b, id, event.FactStarted)
	d.admitted, d.started = append(d.admitted, in.Sub(at)), append(d.started, on.Sub(in))
	d.facts.await(b, id, event.FactSucceeded)
	<-time.After(quiet)
}

// BenchmarkIdentity submits jobs in turn to an installation with keys, permissions and signed requests, and to an
// installation whose bus believes everybody: what it costs to know who asks. It reports the medians from publish to
// `admitted` and from there to `started`.
func BenchmarkIdentity(b *testing.B) {
	server, keys := bustest.StartGuarded(b)
	guarded, trusting := open(b, server, keys), open(b, bustest.Start(b), identity.KeysOf(b.TempDir()))
	for i := 0; b.Loop(); i++ {
		id := train.JobID(fmt.Sprintf("job-%d", i))
		guarded.submit(b, id)
		trusting.submit(b, id)
	}
	for name, took := range map[string][2][]time.Duration{"admitted": {guarded.admitted, trusting.admitted}, "started": {guarded.started, trusting.started}} {
		with, without := float64(median(took[0])), float64(median(took[1]))
		b.ReportMetric(with/float64(time.Millisecond), name+"-keys-ms")
		b.ReportMetric(without/float64(time.Millisecond), name+"-open-ms")
		b.ReportMetric(with/without, name+"-ratio")
	}
	b.ReportMetric(0, "ns/op")
}
