package jobapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/jobapi"
)

// agent answers with the status that the function status returns for a call, and keeps the calls.
type agent struct {
	*httptest.Server
	calls  []string
	status func(call string) int
	stop   bool
}

func newAgent(t *testing.T) *agent {
	a := &agent{status: func(string) int { return http.StatusNoContent }}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		name := strings.TrimPrefix(r.URL.Path, "/attempt/tok/v1/jobs/u-1/")
		call := strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, name, summary(body)))
		a.calls = append(a.calls, call)
		if name == "control" {
			fmt.Fprintf(w, `{"stop":%t,"more":1}`, a.stop)
			return
		}
		w.WriteHeader(a.status(call))
	}))
	t.Cleanup(a.Close)
	return a
}

func summary(body []byte) string {
	var fields struct {
		EpochsDone *int    `json:"epochs_done"`
		Step       *int    `json:"step"`
		Outcome    *string `json:"outcome"`
	}
	if json.Unmarshal(body, &fields) != nil {
		return ""
	}
	var out []string
	if fields.EpochsDone != nil {
		out = append(out, fmt.Sprint(*fields.EpochsDone))
	}
	if fields.Step != nil {
		out = append(out, fmt.Sprint(*fields.Step))
	}
	if fields.Outcome != nil {
		out = append(out, *fields.Outcome)
	}
	return strings.Join(out, " ")
}

func (a *agent) want(t *testing.T, calls ...string) {
	t.Helper()
	if !slices.Equal(a.calls, calls) {
		t.Errorf("calls %q\nwant  %q", a.calls, calls)
	}
	a.calls = nil
}

func epoch(c *jobapi.Client, n uint64) {
	c.EpochEnded(context.Background(), jobapi.Checkpoint{EpochsDone: n}, jobapi.Epoch{EpochsDone: n})
}

func TestCallsInOrder(t *testing.T) {
	ctx, a := context.Background(), newAgent(t)
	c := jobapi.New(a.URL+"/attempt/tok/", "u-1", "", io.Discard)
	c.Steps(ctx, jobapi.Steps{Step: 10})
	epoch(c, 1)
	if c.StopRequested(ctx) {
		t.Error("stop, though nobody asked")
	}
	a.stop = true
	if !c.StopRequested(ctx) {
		t.Error("no stop, though asked")
	}
	c.End(ctx, jobapi.End{Outcome: jobapi.Stopped, EpochsDone: 1})
	a.want(t, "POST steps 10", "POST checkpoints 1", "POST epochs 1", "GET control", "GET control", "POST end 1 stopped")
}

// While the agent is away epochs wait and heartbeats are dropped; when it is back all epochs arrive, in order, before
// the next call.
func TestEpochsSurviveAnOutage(t *testing.T) {
	ctx, a := context.Background(), newAgent(t)
	var log bytes.Buffer
	c := jobapi.New(a.URL+"/attempt/tok", "u-1", "", &log)
	a.status = func(string) int { return http.StatusServiceUnavailable }
	epoch(c, 1)
	c.Steps(ctx, jobapi.Steps{Step: 10}) // backing off: no call
	if c.StopRequested(ctx) {
		t.Error("stop while away")
	}
	a.want(t, "POST checkpoints 1")
	if !strings.Contains(log.String(), "training goes on") {
		t.Errorf("log %q", log.String())
	}
	a.status = func(string) int { return http.StatusOK }
	epoch(c, 2)
	a.want(t, "POST checkpoints 1", "POST epochs 1", "POST checkpoints 2", "POST epochs 2")
	c.Steps(ctx, jobapi.Steps{Step: 20})
	a.want(t, "POST steps 20")
}

func TestRefusedFactDoesNotHoldUpTheNext(t *testing.T) {
	a := newAgent(t)
	var log bytes.Buffer
	c := jobapi.New(a.URL+"/attempt/tok", "u-1", "", &log)
	a.status = func(call string) int {
		if call == "POST checkpoints 1" {
			return http.StatusConflict
		}
		return http.StatusOK
	}
	epoch(c, 1)
	a.want(t, "POST checkpoints 1", "POST epochs 1")
	if !strings.Contains(log.String(), "refused checkpoints") {
		t.Errorf("log %q", log.String())
	}
}

func TestEndIsTriedAgain(t *testing.T) {
	ctx, a := context.Background(), newAgent(t)
	c := jobapi.New(a.URL+"/attempt/tok", "u-1", "", io.Discard)
	a.status = func(string) int {
		if len(a.calls) < 2 {
			return http.StatusBadGateway
		}
		return http.StatusOK
	}
	c.End(ctx, jobapi.End{Outcome: jobapi.Finished, EpochsDone: 3})
	a.want(t, "POST end 3 finished", "POST end 3 finished")
}

func TestWithoutAnAddressNothingIsSent(t *testing.T) {
	ctx, c := context.Background(), jobapi.New("", "u-1", "", io.Discard)
	c.Steps(ctx, jobapi.Steps{})
	epoch(c, 1)
	c.End(ctx, jobapi.End{})
	if c.StopRequested(ctx) {
		t.Error("stop from nobody")
	}
}
