package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// server answers the questions of the API.
type server struct {
	url   string
	bus   *bus.Bus
	known *known
	now   func() time.Time
	// closing is closed when the service stops: streams end then.
	closing <-chan struct{}
}

// answer is the body of an answer. It has a position if it shows what changes.
type answer struct {
	status   int
	position string
	body     any
}

// handler serves the table of routes.
func (s server) handler() http.Handler {
	answers := map[string]func(api.Route, *http.Request) (answer, error){
		api.RouteAbout:  s.about,
		api.RouteJobs:   listed(s, func(x *index.Index, q view.Query) (view.Page, error) { return view.Jobs(x, q, s.now()) }),
		api.RouteJob:    s.job,
		api.RouteNodes:  listed(s, func(x *index.Index, q view.Query) (any, error) { return view.List(x.Nodes, q), nil }),
		api.RoutePlan:   listed(s, func(x *index.Index, _ view.Query) (any, error) { return x.Plan(), nil }),
		api.RouteModels: listed(s, func(x *index.Index, q view.Query) (any, error) { return view.List(x.Models, q), nil }),
	}
	mux := http.NewServeMux()
	for _, r := range api.Routes() {
		handle := answering(r, answers[r.Name])
		switch {
		case r.Streams:
			handle = s.changes
		case r.Method == http.MethodPost:
			handle = answering(r, s.publish)
		}
		mux.Handle(r.Method+" "+r.Path, handle)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, problem(http.StatusNotFound, fmt.Sprintf("%s %s: no such question", r.Method, r.URL.Path), "docs/openapi.json lists them"))
	})
	return mux
}

// answering writes what f returns, or the problem.
func answering(route api.Route, f func(api.Route, *http.Request) (answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a, err := f(route, r)
		if err != nil {
			writeProblem(w, asProblem(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if a.position != "" {
			w.Header().Set(api.PositionHeader, a.position)
		}
		w.WriteHeader(cmp.Or(a.status, http.StatusOK))
		writeJSON(w, a.body)
	}
}

// listed answers a question by a view of the index.
func listed[T any](s server, f func(*index.Index, view.Query) (T, error)) func(api.Route, *http.Request) (answer, error) {
	return func(route api.Route, r *http.Request) (answer, error) {
		q, err := route.Decode(r.URL.Query())
		if err != nil {
			return answer{}, err
		}
		var body T
		position := s.known.read(func(x *index.Index) { body, err = f(x, q) })
		return answer{position: position, body: body}, err
	}
}

func (s server) about(api.Route, *http.Request) (answer, error) {
	return answer{body: api.About{Bus: s.url}}, nil
}

// job answers with the records and the facts of a job.
func (s server) job(route api.Route, r *http.Request) (answer, error) {
	q, err := route.Decode(r.URL.Query())
	if err != nil {
		return answer{}, err
	}
	var d view.Detail
	ref := r.PathValue("id")
	position := s.known.read(func(x *index.Index) {
		var job *train.Job
		if job, err = view.Find(x, ref, q.User); err == nil {
			d = view.Describe(x, *job, s.now())
		}
	})
	if err != nil {
		d, err = s.unread(r.Context(), ref, err)
	}
	if err == nil {
		err = s.bus.Stored(r.Context(), event.StreamJobs, d.FactSubjects(), time.Time{}, func(m bus.Message) { d.Fact(m.Parsed.Fact, m.Data) })
	}
	return answer{position: position, body: d}, err
}

// unread answers with the submission that admission has not read yet, or says why no job is meant.
func (s server) unread(ctx context.Context, ref string, why error) (view.Detail, error) {
	unknown, is := errors.AsType[*view.UnknownJobError](why)
	if !is {
		return view.Detail{}, problemError{problem(http.StatusConflict, why.Error(), "give more of the id")}
	}
	if id, err := train.ParseJobID(ref); err == nil {
		if m, err := s.bus.Last(ctx, event.StreamJobs, event.JobSubject(id, event.FactSubmitted)); err == nil {
			if body, err := event.Decode[event.Submitted](m.Data); err == nil {
				return view.Detail{Job: view.Unread(id, body.Spec)}, nil
			}
		}
	}
	return view.Detail{}, problemError{problem(http.StatusNotFound, unknown.Error(), unknown.Fix)}
}

// problemError is an error whose answer is given.
type problemError struct{ api.Problem }

// Error implements error.
func (e problemError) Error() string { return e.Detail }

func problem(status int, detail, fix string) api.Problem {
	return api.Problem{Title: http.StatusText(status), Status: status, Detail: detail, Fix: fix}
}

// asProblem makes an error of the request of whatever has no status of its own.
func asProblem(err error) api.Problem {
	if own, is := errors.AsType[problemError](err); is {
		return own.Problem
	}
	if state, is := errors.AsType[*api.UnknownStateError](err); is {
		return problem(http.StatusBadRequest, err.Error(), state.Fix)
	}
	return problem(http.StatusBadRequest, err.Error(), "")
}

func writeProblem(w http.ResponseWriter, p api.Problem) {
	w.Header().Set("Content-Type", api.ProblemType)
	w.WriteHeader(p.Status)
	writeJSON(w, p)
}

func writeJSON(w http.ResponseWriter, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the caller has gone away
}
