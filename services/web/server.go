package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
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

func (s server) job(route api.Route, r *http.Request) (answer, error) {
	ref := r.PathValue("id")
	return listed(s, func(x *index.Index, q view.Query) (view.Detail, error) {
		job, err := view.Find(x, ref, q.User)
		var unknown *view.UnknownJobError
		switch {
		case errors.As(err, &unknown):
			return view.Detail{}, problemError{problem(http.StatusNotFound, err.Error(), unknown.Fix)}
		case err != nil:
			return view.Detail{}, problemError{problem(http.StatusConflict, err.Error(), "give more of the id")}
		}
		return view.Describe(x, *job, s.now()), nil
	})(route, r)
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
