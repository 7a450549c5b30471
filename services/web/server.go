package web

import (
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
}

// handler serves the table of routes.
func (s server) handler() http.Handler {
	answers := map[string]func(*http.Request) (any, error){
		api.RouteAbout: s.about,
		api.RouteJobs:  s.jobs,
	}
	mux := http.NewServeMux()
	for _, r := range api.Routes() {
		mux.Handle(r.Method+" "+r.Path, answering(answers[r.Name]))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, problem(http.StatusNotFound, fmt.Sprintf("%s %s: no such question", r.Method, r.URL.Path), "docs/openapi.json lists them"))
	})
	return mux
}

// answering writes what f returns, or the problem.
func answering(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := f(r)
		if err != nil {
			writeProblem(w, asProblem(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		writeJSON(w, answer)
	}
}

func (s server) about(*http.Request) (any, error) { return api.About{Bus: s.url}, nil }

func (s server) jobs(r *http.Request) (any, error) {
	q, err := api.Decode(r.URL.Query())
	if err != nil {
		return nil, err
	}
	var page view.Page
	s.known.read(func(x *index.Index) { page, err = view.Jobs(x, q, s.now()) })
	return page, err
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
