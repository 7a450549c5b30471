package runas

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// beside returns a server beside this one that starts the jobs itself, as its own user.
func (l *lab) beside() *lab {
	l.t.Helper()
	alone := *l
	alone.dir, alone.port = l.path("alone"), l.port+1
	l.must(os.Mkdir(alone.dir, 0o755))
	alone.furnish("{}")
	return &alone
}

// watched is a server, and a client that sees what happens there.
type watched struct {
	*lab
	conn    *bus.Bus
	started []time.Duration
}

// at returns when the bus took a fact about a job.
func (w *watched) at(id, fact string) (taken time.Time) {
	w.t.Helper()
	w.until(fact+" of "+id, func() bool {
		m, err := w.conn.Last(w.ctx, event.StreamJobs, event.JobSubject(train.JobID(id), fact))
		taken = m.Time
		return err == nil
	})
	return taken
}

// BenchmarkLauncher submits jobs in turn to a server whose launcher starts them as the person who submits them, and to
// a server that starts them itself, as its own user. It reports the medians from `admitted` to `started`.
func BenchmarkLauncher(b *testing.B) {
	l := newLab(b)
	l.up()
	l.launch()
	alone := l.beside()
	alone.up()
	servers := map[string]*watched{"launcher": {lab: l, conn: l.connect("cli")}, "itself": {lab: alone, conn: alone.connect("cli")}}
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprintf("job-%d", i)
		for _, w := range servers {
			w.submit(l.ann, id, []string{"--work-dir", "/tmp"}, "true")
			w.at(id, event.FactSucceeded)
			w.started = append(w.started, w.at(id, event.FactStarted).Sub(w.at(id, event.FactAdmitted)))
		}
	}
	medians := map[string]float64{}
	for name, w := range servers {
		slices.Sort(w.started)
		medians[name] = float64(w.started[len(w.started)/2]) / float64(time.Millisecond)
		b.ReportMetric(medians[name], "started-"+name+"-ms")
	}
	b.ReportMetric(medians["launcher"]/medians["itself"], "started-ratio")
	b.ReportMetric(0, "ns/op")
}
