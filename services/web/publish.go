package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rehearse"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
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
	body, err := requestOf(r, kind, person)
	if err != nil {
		return answer{}, err
	}
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

// requestOf reads the body of a fact, and writes into it who asks.
func requestOf(r *http.Request, kind event.Kind, person access.Person) (any, error) {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, event.MaxBodyBytes))
	if err != nil {
		return nil, problemError{problem(http.StatusRequestEntityTooLarge, fmt.Sprintf("read the body: %v", err), fmt.Sprintf("a fact has at most %d bytes", event.MaxBodyBytes))}
	}
	body, reasons := event.DecodeRequest(kind, data)
	if len(reasons) > 0 {
		p := problem(http.StatusUnprocessableEntity, fmt.Sprintf("%s: %s", kind.Subject(), reasons[0]), "correct the body; docs/events.md lists the keys")
		p.Reasons = reasons
		return nil, problemError{p}
	}
	return body, attribute(body, person)
}

// rehearse asks what would become of a submission.
func (s server) rehearse(route api.Route, r *http.Request) (answer, error) {
	id, err := train.ParseJobID(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	kind, _ := event.Find(event.JobSubject(id, event.FactSubmitted))
	person, err := s.mayPublish(r, kind)
	if err != nil {
		return answer{}, err
	}
	if err := s.inTime(person); err != nil {
		return answer{}, err
	}
	body, err := requestOf(r, kind, person)
	if err != nil {
		return answer{}, err
	}
	spec, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), waiting)
	defer cancel()
	rehearsal, err := rehearse.Ask(ctx, s.bus, rpc.Candidate{ID: id, Spec: spec, By: person.Name, Door: cameBy(r)})
	return answer{body: rehearsal}, asked(err)
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
