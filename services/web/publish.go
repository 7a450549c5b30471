package web

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// publish stores the fact of a route, as any client of the bus could.
func (s server) publish(route api.Route, r *http.Request) (answer, error) {
	kind := route.Fact
	subject := event.Subject{Entity: kind.Entity, ID: r.PathValue("id"), Fact: kind.Fact, Version: kind.Version}
	if _, err := event.ParseSubject(subject.String()); err != nil {
		return answer{}, err
	}
	person, err := s.mayPublish(r, kind)
	if err != nil {
		return answer{}, err
	}
	if err := s.inTime(person); err != nil {
		note(s.floods, r, person.Name, operationOf(kind), err)
		return answer{}, err
	}
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, event.MaxBodyBytes))
	if err != nil {
		return answer{}, problemError{problem(http.StatusRequestEntityTooLarge, fmt.Sprintf("read the body: %v", err), fmt.Sprintf("a fact has at most %d bytes", event.MaxBodyBytes))}
	}
	body, reasons := event.DecodeRequest(kind, data)
	if len(reasons) > 0 {
		p := problem(http.StatusUnprocessableEntity, fmt.Sprintf("%s: %s", kind.Subject(), reasons[0]), "correct the body; docs/events.md lists the keys")
		p.Reasons = reasons
		return answer{}, problemError{p}
	}
	attribute(body, person)
	fact := event.Fact{
		Subject: subject, Key: factKey(kind, subject.ID, r.Header.Get(api.KeyHeader)), By: person.Name, Door: cameBy(r), Once: kind.Once, Body: body,
		TraceParent: traceOf(r),
	}
	accepted := api.Accepted{Subject: subject.String()}
	if kind.Once {
		accepted.Repeat, err = s.bus.PublishOnce(r.Context(), kind.Stream, fact)
	} else {
		err = s.bus.Publish(r.Context(), fact)
	}
	switch {
	case errors.Is(err, bus.ErrConflict):
		err = problemError{problem(http.StatusConflict, fmt.Sprintf("%s %s: another submission has this id, and the first one stands", kind.Entity, subject.ID), "choose another id")}
	case err != nil:
		err = problemError{problem(http.StatusServiceUnavailable, err.Error(), "send it again: the same fact is stored once")}
	}
	return answer{status: http.StatusAccepted, body: accepted}, err
}

// traceOf returns the W3C trace context of a caller who has one.
func traceOf(r *http.Request) string {
	const length = 55
	if context := r.Header.Get(event.HeaderTraceParent); len(context) == length {
		return context
	}
	return ""
}

// factKey fills the pattern of a kind's key: the id, and the caller's word for whatever tells requests apart.
func factKey(kind event.Kind, id, word string) string {
	key := strings.ReplaceAll(kind.Key, "<id>", id)
	return regexp.MustCompile("<[^>]*>").ReplaceAllLiteralString(key, cmp.Or(word, rand.Text()))
}
