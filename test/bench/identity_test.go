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
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission"
)

// door is admission on a bus, and a client that submits.
type door struct {
	conn  *bus.Bus
	facts moments
	took  []time.Duration
}

// admitting starts admission on a bus of its own.
func admitting(b *testing.B, server *busserver.Server, keys identity.Keys) *door {
	b.Helper()
	c, err := settings.Of("--nats", server.URL(), "--keys", string(keys), "--data-dir", b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	conn := bustest.ConnectWith(b, bus.Config{URL: server.URL(), Keys: string(keys), Name: "cli"})
	together(b, c.Common, admission.New(c.Admission))
	return &door{conn: conn, facts: follow(b, conn, event.StreamJobs)}
}

func (d *door) submit(b *testing.B, id train.JobID) {
	b.Helper()
	spec := train.Spec{Name: "true", Command: []string{"true"}, BatchSize: 1, TrainingSetSize: 1, MaxEpochs: 1}
	at := time.Now()
	if err := d.conn.Publish(b.Context(), event.OnceFact(id, event.FactSubmitted, "submitted", event.Submitted{Spec: spec})); err != nil {
		b.Fatal(err)
	}
	d.took = append(d.took, d.facts.await(b, id, event.FactAdmitted).Sub(at))
}

// BenchmarkIdentity submits jobs in turn to a bus with keys and to one without: what it costs to know who asks. It
// reports the medians from publish to `admitted`.
func BenchmarkIdentity(b *testing.B) {
	server, keys := bustest.StartGuarded(b)
	guarded, open := admitting(b, server, keys), admitting(b, bustest.Start(b), identity.KeysOf(b.TempDir()))
	for i := 0; b.Loop(); i++ {
		id := train.JobID(fmt.Sprintf("job-%d", i))
		guarded.submit(b, id)
		open.submit(b, id)
	}
	with, without := float64(median(guarded.took)), float64(median(open.took))
	b.ReportMetric(with/float64(time.Millisecond), "keys-ms")
	b.ReportMetric(without/float64(time.Millisecond), "open-ms")
	b.ReportMetric(with/without, "ratio")
	b.ReportMetric(0, "ns/op")
}
