package admission

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// collector stands in for a collector of OpenTelemetry. It takes OTLP/HTTP in JSON, strictly: unknown keys and wrong
// types are refused.
type collector struct {
	*httptest.Server
	t  *testing.T
	mu sync.Mutex
	// spans are those that came, by their names. breaks is how many of the next requests are taken and then answered with
	// an error.
	spans  []otlpSpan
	breaks int
}

type otlpValue struct {
	StringValue *string `json:"stringValue"`
	IntValue    *string `json:"intValue"`
	ArrayValue  *struct {
		Values []otlpValue `json:"values"`
	} `json:"arrayValue"`
}

type otlpAttribute struct {
	Key   string    `json:"key"`
	Value otlpValue `json:"value"`
}

type otlpSpan struct {
	TraceID           string          `json:"traceId"`
	SpanID            string          `json:"spanId"`
	ParentSpanID      string          `json:"parentSpanId"`
	Name              string          `json:"name"`
	Kind              int             `json:"kind"`
	StartTimeUnixNano string          `json:"startTimeUnixNano"`
	EndTimeUnixNano   string          `json:"endTimeUnixNano"`
	Attributes        []otlpAttribute `json:"attributes"`
	Status            struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
}

type otlpRequest struct {
	ResourceSpans []struct {
		Resource struct {
			Attributes []otlpAttribute `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []struct {
			Scope struct{ Name, Version string } `json:"scope"`
			Spans []otlpSpan                     `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		var body otlpRequest
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&body); err != nil || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer "+trackingToken {
			t.Errorf("headers %v, error %v", r.Header, err)
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range body.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
		if c.breaks--; c.breaks >= 0 {
			http.Error(w, "later", http.StatusServiceUnavailable)
		}
	})
	c.Server = httptest.NewServer(mux)
	t.Cleanup(c.Close)
	return c
}

// of waits for the span of the job's end, and returns the spans by their ids, in the order in which they came.
func (c *collector) of(b *bench, job string) (all []otlpSpan) {
	c.t.Helper()
	for range tick.Every(b.ctx, 10*time.Millisecond) {
		c.mu.Lock()
		came := slices.Clone(c.spans)
		c.mu.Unlock()
		seen := map[string]bool{}
		all = slices.DeleteFunc(came, func(s otlpSpan) bool {
			again := seen[s.SpanID]
			seen[s.SpanID] = true
			return again || s.attribute("switchyard.job.id") != job
		})
		if slices.ContainsFunc(all, func(s otlpSpan) bool { return s.Name == "job" }) {
			return all
		}
	}
	c.t.Fatalf("the trace of %s does not come: %+v", job, all)
	return nil
}

func (s otlpSpan) attribute(key string) string {
	for _, a := range s.Attributes {
		switch {
		case a.Key != key:
		case a.Value.IntValue != nil:
			return *a.Value.IntValue
		case a.Value.StringValue != nil:
			return *a.Value.StringValue
		}
	}
	return ""
}

// TestAJobsLifeIsATrace follows a job through two attempts, a collector that is away and a restart of admission.
func TestAJobsLifeIsATrace(t *testing.T) {
	b, c := newBench(t), newCollector(t)
	b.tracing = settings.Tracing{Endpoint: c.URL + "/", Authorization: "Bearer " + trackingToken}
	stop := b.serve()
	b.send("yard.job.a.submitted.v1", `{"name":"digits","project":"vision","command":["true"]}`)
	b.await("a", inState(train.StateQueued))
	b.sendAs("planner", "yard.job.a.planned.v1", `{"generation":7,"node":"n","devices":["cpu:0"],"reason":{}}`)
	b.sendAs("executor", "yard.job.a.started.v1", `{"attempt":1,"generation":7,"devices":["cpu:0"],"node":"n"}`)
	c.mu.Lock()
	c.breaks = 2
	c.mu.Unlock()
	b.sendAs("executor", "yard.job.a.preempted.v1", `{"attempt":1,"epochs_done":2}`)
	b.await("a", inState(train.StatePreempted))
	stop()
	b.sendAs("executor", "yard.job.a.started.v1", `{"attempt":2,"generation":8,"devices":["cpu:1"],"node":"n"}`)
	b.sendAs("executor", "yard.job.a.failed.v1", `{"attempt":2,"reason":{"code":"ExitStatus","message":"status 1"}}`)
	b.serve()
	var got []string
	spans := c.of(b, "a")
	root := spans[len(spans)-1]
	for _, s := range spans {
		got = append(got, strings.TrimSpace(s.Name+" "+s.attribute("switchyard.attempt")+" "+s.attribute("switchyard.outcome")))
		start, err := strconv.ParseInt(s.StartTimeUnixNano, 10, 64)
		end, err2 := strconv.ParseInt(s.EndTimeUnixNano, 10, 64)
		if err != nil || err2 != nil || end < start || s.TraceID != root.TraceID || len(s.TraceID) != 32 || len(s.SpanID) != 16 || s.Kind != 1 || s.attribute("switchyard.job.project") != "vision" {
			t.Errorf("%+v", s)
		}
		if s.Name != "job" && s.ParentSpanID != root.SpanID {
			t.Errorf("%s has the parent %s, want %s", s.Name, s.ParentSpanID, root.SpanID)
		}
	}
	want := []string{"admission", "decision 1", "start 1", "attempt 1 preempted", "decision 2", "start 2", "attempt 2 failed", "job  failed"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if root.Status.Code != 2 || root.Status.Message != "status 1" || root.ParentSpanID != "" {
		t.Errorf("the job's span: %+v", root)
	}
}
