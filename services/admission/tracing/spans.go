// Package tracing makes a trace of the life of each job, and sends it to a collector of OpenTelemetry. The spans follow
// from the job's facts alone, ids included, so a span is the same however often it is made.
package tracing

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Fact is a fact about a job. Body is a pointer to its decoded body.
type Fact struct {
	At       time.Time
	Sequence uint64
	// TraceParent is the W3C trace context of its publisher, if any.
	TraceParent string
	Body        any
}

// Span is a part of a job's life that is over.
type Span struct {
	Trace, ID, Parent string // hexadecimal; Parent is empty for the root of a trace
	Name              string
	Start, End        time.Time
	// Attributes are strings, numbers (int or uint64) or []string.
	Attributes map[string]any
	// Failure says what went wrong; empty if nothing did.
	Failure string
	// By is the sequence of the fact that ended it.
	By uint64
}

// The names of spans. A job has one span of each life, which holds the others.
const (
	spanJob       = "job"       // from the submission, or its resumption, to its end
	spanAdmission = "admission" // to its acceptance or rejection
	spanDecision  = "decision"  // from then, or from the end of the attempt before, to the plan that gives it devices
	spanStart     = "start"     // from that plan until its processes run
	spanAttempt   = "attempt"   // while they run
)

// life is a fold of the facts of a job.
type life struct {
	job           train.JobID
	trace, parent string
	number        int // resumptions
	common        map[string]any

	began, waits, planned, started time.Time
	attempt                        map[string]any
	over                           bool
	spans                          []Span
}

// Spans returns what is over of a job's life, by its facts in the order of their stream.
func Spans(job train.JobID, facts []Fact) []Span {
	l := &life{job: job}
	for _, f := range facts {
		if b, is := f.Body.(*event.Submitted); is && l.began.IsZero() {
			l.submitted(f, b)
		} else if !l.began.IsZero() {
			l.take(f)
		}
	}
	return l.spans
}

func (l *life) submitted(f Fact, b *event.Submitted) {
	l.began = f.At
	l.common = map[string]any{"switchyard.job.id": string(l.job)}
	for key, value := range map[string]string{"name": b.Name, "user": b.User, "tenant": b.Tenant, "project": b.Project} {
		if value != "" {
			l.common["switchyard.job."+key] = value
		}
	}
	if l.trace, l.parent = parse(f.TraceParent); l.trace == "" {
		l.trace = id(16, "trace", string(l.job), f.At.UTC().Format(time.RFC3339Nano))
	}
}

// take folds a fact. A job that has ended stays so until a person resumes it.
func (l *life) take(f Fact) {
	if b, is := f.Body.(*event.Wanted); is && l.over && b.State == train.WantRun {
		l.over, l.number, l.began, l.waits = false, l.number+1, f.At, f.At
	}
	if l.over {
		return
	}
	switch b := f.Body.(type) {
	case *event.Admitted:
		l.end(f, spanAdmission, l.began, nil, "")
		l.waits = f.At
	case *event.Rejected:
		l.end(f, spanAdmission, l.began, nil, b.Message)
		l.finish(f, "rejected", b.Message)
	case *event.Planned:
		if !l.waits.IsZero() {
			l.planned = f.At
		}
	case *event.Started:
		l.begin(f, b)
	case *event.Preempted:
		l.leave(f, "preempted", "")
	case *event.AttemptLost:
		l.leave(f, "lost", ended(b.Exit, "the attempt was lost"))
	case *event.Succeeded:
		l.finish(f, "succeeded", "")
	case *event.Failed:
		l.finish(f, "failed", ended(b.Exit, b.Reason.Message))
	case *event.Cancelled:
		l.finish(f, "cancelled", "")
	}
}

// begin ends the wait for an attempt and its start.
func (l *life) begin(f Fact, b *event.Started) {
	if l.waits.IsZero() {
		return // a later fact has overtaken the end of the attempt before
	}
	if l.planned.IsZero() {
		l.planned = f.At
	}
	l.attempt = map[string]any{"switchyard.attempt": b.Attempt, "switchyard.node": string(b.Node), "switchyard.devices": train.Words(b.Devices), "switchyard.plan": b.Generation}
	l.end(f, spanDecision, l.waits, l.attempt, "")
	l.end(f, spanStart, l.planned, l.attempt, "")
	l.waits, l.planned, l.started = time.Time{}, time.Time{}, f.At
}

// leave ends the attempt. The job waits for the next one.
func (l *life) leave(f Fact, outcome, failure string) {
	if !l.started.IsZero() {
		l.attempt["switchyard.outcome"] = outcome
		l.end(f, spanAttempt, l.started, l.attempt, failure)
	}
	l.started, l.attempt, l.waits = time.Time{}, nil, f.At
}

// finish ends the life, and the attempt or wait in which it ends.
func (l *life) finish(f Fact, outcome, failure string) {
	if !l.waits.IsZero() {
		l.end(f, spanDecision, l.waits, nil, "")
	}
	l.leave(f, outcome, failure)
	l.end(f, spanJob, l.began, map[string]any{"switchyard.outcome": outcome}, failure)
	l.over, l.waits, l.planned = true, time.Time{}, time.Time{}
}

// end adds a span that a fact ends. The decision ends with the plan that the start follows.
func (l *life) end(f Fact, name string, start time.Time, more map[string]any, failure string) {
	s := Span{Trace: l.trace, Name: name, Start: start, End: f.At, Failure: failure, By: f.Sequence, Attributes: map[string]any{}}
	for _, from := range []map[string]any{l.common, more} {
		maps.Copy(s.Attributes, from)
	}
	root := id(8, l.trace, spanJob, fmt.Sprint(l.number))
	switch name {
	case spanJob:
		s.ID, s.Parent = root, l.parent
	default:
		s.ID, s.Parent = id(8, l.trace, name, fmt.Sprint(f.Sequence)), root
	}
	if name == spanDecision && !l.planned.IsZero() {
		s.End = l.planned
	}
	if s.End.Before(s.Start) { // clocks of two machines
		s.End = s.Start
	}
	l.spans = append(l.spans, s)
}

// ended says how an attempt ended.
func ended(e train.Exit, otherwise string) string {
	switch {
	case e.Message != "":
		return e.Message
	case otherwise != "":
		return otherwise
	}
	return "the program failed"
}

// id returns n bytes that follow from words.
func id(n int, words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:n])
}

// parse returns the ids of a W3C trace context, 00-<trace>-<span>-<flags>; empty ones if it is none.
func parse(traceparent string) (trace, span string) {
	parts := strings.Split(traceparent, "-")
	if len(parts) != 4 || parts[0] != "00" || !isID(parts[1], 32) || !isID(parts[2], 16) {
		return "", ""
	}
	return parts[1], parts[2]
}

func isID(text string, length int) bool {
	digits := !strings.ContainsFunc(text, func(c rune) bool { return !strings.ContainsRune("0123456789abcdef", c) })
	return len(text) == length && digits && strings.Trim(text, "0") != ""
}
