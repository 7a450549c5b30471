package web

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/throttle"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/trainingjob"
)

// What an object asks for is asked by its service account, as if it had shown its token: with its role, and by no user
// of the machine.
func TestObjectsAskAsTheirServiceAccount(t *testing.T) {
	b := newBench(t)
	known, log := newKnown(slog.New(slog.DiscardHandler), "x"), slog.New(slog.DiscardHandler)
	s := server{bus: b.bus, known: known, refusals: audit.New(b.bus, log, time.Now), floods: audit.New(b.bus, log, time.Now), rates: throttle.New(), now: time.Now}
	k := kubernetesJobs{known, b.bus, s.handler(), time.Now, nil}
	ask := func(namespace, fact string, body any) string {
		t.Helper()
		refused, err := k.Publish(b.ctx, namespace, "default", trainingjob.Request{Job: "a-1", Fact: fact, Key: "k", Body: body})
		if err != nil {
			t.Fatal(err)
		}
		if refused == nil {
			return ""
		}
		return refused.Code
	}
	job := map[string]any{"name": "a", "command": []string{"true"}}
	for _, want := range []struct {
		namespace, fact string
		body            any
		refused         string
	}{
		{"vision", event.FactSubmitted, map[string]any{"name": "a", "comand": "true"}, "UnknownField"},
		{strings.Repeat("long", 15), event.FactSubmitted, job, "NoName"},
		{"guests", event.FactSubmitted, job, "Forbidden"},
		{"vision", event.FactSubmitted, job, ""},
		{"vision", event.FactSubmitted, job, ""}, // again
		{"vision", event.FactSubmitted, map[string]any{"name": "b", "command": []string{"true"}}, "Conflict"},
		{"others", event.FactCancelRequested, event.CancelRequested{}, "Forbidden"},
		{"vision", event.FactCancelRequested, event.CancelRequested{}, ""},
	} {
		if want.namespace == "guests" {
			viewer, _ := json.Marshal(access.Person{Name: "guests.default", Role: access.Viewer})
			known.put(known.index.Users, "guests=default", 1, viewer)
		}
		if got := ask(want.namespace, want.fact, want.body); got != want.refused {
			t.Errorf("%s of %s: %q, want %q", want.fact, want.namespace, got, want.refused)
		}
	}
	m, err := b.bus.Last(b.ctx, event.StreamJobs, event.JobSubject("a-1", event.FactSubmitted))
	if err != nil {
		t.Fatal(err)
	}
	who, err := m.Asker()
	spec, _ := event.Decode[event.Submitted](m.Data)
	if err != nil || who.Door != "KUBERNETES" || spec.User != "vision.default" {
		t.Errorf("%+v asks for a job of %s: %v", who, spec.User, err)
	}
	for namespace, state := range map[string]train.State{"vision": train.StateSubmitted, "others": ""} {
		found, err := k.Job(b.ctx, namespace, "default", "a-1")
		if err != nil || found.Row.State != state || (found.Job != nil) != (state != "") {
			t.Errorf("the job that %s sees before admission has read it: %+v, %v", namespace, found, err)
		}
	}
	if found, err := k.Job(b.ctx, "vision", "default", "no-such"); err != nil || found.Job != nil {
		t.Errorf("a job that nobody submitted: %+v, %v", found, err)
	}
}
