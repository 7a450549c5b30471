package local

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// The first job fetches from a server that sends next to nothing, and the second one waits for the same data.
func TestACancelledJobStopsFetching(t *testing.T) {
	b := newBench(t)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	b.Data = staging.New(staging.Config{
		Dir: t.TempDir(), Reads: b.Reads,
		Terms: staging.Terms{Limit: 1 << 20, Policy: staging.Policy{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}},
	})
	t.Cleanup(b.Close)
	jobs := []train.JobID{"first", "second"}
	for _, job := range jobs {
		s := slots()
		s.Job, s.Attempt.Job, s.Attempt.Number, s.Spec.DataURL = job, job, 1, server.URL
		if err := b.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for i := range jobs { // the one that waits is cancelled first
		a := train.Attempt{Job: jobs[len(jobs)-1-i], Number: 1}
		if err := b.Stop(t.Context(), a, time.Now()); err != nil {
			t.Fatal(err)
		}
		b.until("nothing is fetched for "+string(a.Job), func() bool { return !b.isPreparing(attempt.In(b.Layout, a.Job, a.Number)) })
	}
}
