package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Exporter sends each span once the fact that ends it is stored. A fact is handled again until the collector has taken
// its spans; those keep their ids.
type Exporter struct {
	bus    *bus.Bus
	config settings.Tracing
	web    http.Client
	log    *slog.Logger
}

// New makes an exporter.
func New(b *bus.Bus, c settings.Tracing, log *slog.Logger) *Exporter {
	const timeout = 10 * time.Second
	return &Exporter{bus: b, config: c, log: log, web: http.Client{Timeout: timeout}}
}

// facts are those that spans follow from.
func facts(job string) []string {
	return subjects(job, slices.Concat([]string{event.FactSubmitted, event.FactPlanned, event.FactWanted}, ends()))
}

// ends are the facts that end spans.
func ends() []string {
	return []string{
		event.FactAdmitted, event.FactRejected, event.FactStarted, event.FactPreempted, event.FactAttemptLost, event.FactSucceeded, event.FactFailed, event.FactCancelled,
	}
}

func subjects(job string, facts []string) []string {
	all := make([]string, len(facts))
	for i, fact := range facts {
		all[i] = event.Subject{Entity: "job", ID: job, Fact: fact, Version: 1}.String()
	}
	return all
}

// Consumer reads the facts that end spans.
func (e *Exporter) Consumer() bus.Consumer {
	return bus.Consumer{
		Name: "traces", Stream: event.StreamJobs, Filters: subjects("*", ends()), Lane: func(m bus.Message) string { return m.Parsed.ID }, Handle: e.handle,
	}
}

func (e *Exporter) handle(ctx context.Context, m bus.Message) ([]event.Fact, error) {
	var all []Fact
	err := e.bus.Stored(ctx, event.StreamJobs, facts(m.Parsed.ID), time.Time{}, func(m bus.Message) {
		kind, found := event.Find(m.Parsed)
		if !found || !kind.Asked() && m.Source != kind.Publisher {
			return // the register sets it aside
		}
		if body, err := event.DecodeBody(kind, m.Data); err == nil {
			all = append(all, Fact{At: m.Time, Sequence: m.Sequence, TraceParent: m.TraceParent, Body: body})
		}
	})
	if err != nil {
		return nil, err
	}
	spans := slices.DeleteFunc(Spans(train.JobID(m.Parsed.ID), all), func(s Span) bool { return s.By != m.Sequence })
	if len(spans) == 0 {
		return nil, nil
	}
	if err := e.send(ctx, spans); err != nil {
		e.log.Warn("a trace is not exported yet", "job", m.Parsed.ID, "fact", m.Parsed.Fact, "error", err)
		return nil, err
	}
	return nil, nil
}

// send posts spans by OTLP/HTTP. What the collector refuses for good is logged and dropped: no trace holds up others.
func (e *Exporter) send(ctx context.Context, spans []Span) error {
	body, err := json.Marshal(encode(spans))
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(e.config.Endpoint, "/")+"/v1/traces", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("export spans: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	if e.config.Authorization != "" {
		request.Header.Set("Authorization", e.config.Authorization)
	}
	answer, err := e.web.Do(request)
	if err != nil {
		return fmt.Errorf("export spans: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
	switch {
	case answer.StatusCode < http.StatusMultipleChoices:
		return nil
	case answer.StatusCode == http.StatusTooManyRequests, answer.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("export spans: %s: %s", answer.Status, text)
	}
	e.log.Error("spans are lost: the collector refuses them", "spans", len(spans), "status", answer.Status, "answer", string(text))
	return nil
}

// The JSON of OTLP, as opentelemetry-proto's trace.proto maps to it: ids are hexadecimal, 64-bit numbers are strings.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	span struct {
		TraceID           string      `json:"traceId"`
		SpanID            string      `json:"spanId"`
		ParentSpanID      string      `json:"parentSpanId,omitempty"`
		Name              string      `json:"name"`
		Kind              int         `json:"kind"`
		StartTimeUnixNano string      `json:"startTimeUnixNano"`
		EndTimeUnixNano   string      `json:"endTimeUnixNano"`
		Attributes        []attribute `json:"attributes"`
		Status            status      `json:"status"`
	}
	status struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String string `json:"stringValue,omitempty"`
		Int    string `json:"intValue,omitempty"`
		Array  *array `json:"arrayValue,omitempty"`
	}
	array struct {
		Values []value `json:"values"`
	}
)

const (
	kindInternal = 1
	statusError  = 2
)

func encode(spans []Span) request {
	all := make([]span, len(spans))
	for i, s := range spans {
		all[i] = span{
			TraceID: s.Trace, SpanID: s.ID, ParentSpanID: s.Parent, Name: s.Name, Kind: kindInternal,
			StartTimeUnixNano: strconv.FormatInt(s.Start.UnixNano(), 10), EndTimeUnixNano: strconv.FormatInt(s.End.UnixNano(), 10), Attributes: attributes(s.Attributes),
		}
		if s.Failure != "" {
			all[i].Status = status{statusError, s.Failure}
		}
	}
	version := build.This().Version
	return request{[]resourceSpans{{
		Resource:   resource{attributes(map[string]any{"service.name": "switchyard", "service.version": version})},
		ScopeSpans: []scopeSpans{{Scope: scope{"github.com/switchyard-dl/switchyard", version}, Spans: all}},
	}}}
}

func attributes(of map[string]any) []attribute {
	var all []attribute
	for _, key := range slices.Sorted(maps.Keys(of)) {
		var v value
		switch x := of[key].(type) {
		case string:
			v.String = x
		case int:
			v.Int = strconv.Itoa(x)
		case uint64:
			v.Int = strconv.FormatUint(x, 10)
		case []string:
			v.Array = &array{}
			for _, word := range x {
				v.Array.Values = append(v.Array.Values, value{String: word})
			}
		}
		all = append(all, attribute{key, v})
	}
	return all
}
