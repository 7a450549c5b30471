// Package api declares the HTTP API of the service web: its routes, their parameters and what they answer. The service
// serves this table, the command line asks by it, and docs/openapi.json is made of it.
package api

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// SocketName is the Unix socket of the service in the data folder.
const SocketName = "web.sock"

// Prefix begins every path of this version.
const Prefix = "/api/v1"

// The routes.
const (
	RouteAbout = "about"
	RouteJobs  = "jobs"
)

// Route is one question that can be asked.
type Route struct {
	// Name is unique.
	Name string
	// Method and Path, whose parts in braces are parameters.
	Method, Path string
	// Doc says what it does.
	Doc string
	// Query are the parameters after the question mark.
	Query []Parameter
	// Answer is an example of the type of the body of the answer.
	Answer any
}

// Routes is the table of the API.
func Routes() []Route {
	return []Route{
		{Name: RouteAbout, Method: "GET", Path: Prefix, Doc: "Which installation this is.", Answer: About{}},
		{Name: RouteJobs, Method: "GET", Path: Prefix + "/jobs", Doc: "The jobs, the newest first.", Query: queryParameters(), Answer: view.Page{}},
	}
}

// About says which installation answers.
type About struct {
	// Bus is the URL of the bus whose records are served.
	Bus string `json:"bus"`
}

// Problem is the body of every answer that is no success, as RFC 9457 has it.
type Problem struct {
	// Title is the meaning of the status.
	Title string `json:"title"`
	// Status is that of the answer.
	Status int `json:"status"`
	// Detail says what went wrong, and where.
	Detail string `json:"detail"`
	// Fix says what to do about it.
	Fix string `json:"fix,omitempty"`
	// Reasons are all that is wrong with the body of the request.
	Reasons []train.Reason `json:"reasons,omitempty"`
}

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// Parameter is a part of a query: how it is written in a URL and where it belongs.
type Parameter struct {
	Name, Doc string
	// Whole is set for a number.
	Whole bool
	get   func(view.Query) string
	set   func(*view.Query, string) error
}

func queryParameters() []Parameter {
	return []Parameter{
		{
			Name: "user", Doc: "Only jobs of this user.",
			get: func(q view.Query) string { return q.User },
			set: func(q *view.Query, v string) error { q.User = v; return nil },
		},
		{
			Name: "state", Doc: "Only jobs in these states, joined by commas.",
			get: func(q view.Query) string {
				words := make([]string, len(q.States))
				for i, s := range q.States {
					words[i] = string(s)
				}
				return strings.Join(words, ",")
			},
			set: func(q *view.Query, v string) (err error) {
				q.States, err = States(strings.Split(v, ","))
				return err
			},
		},
		number("newest", "At most this number of jobs, in any state; 0: all.", func(q *view.Query) *int { return &q.Newest }),
		number("finished", "At most this number of jobs that have ended; 0: all.", func(q *view.Query) *int { return &q.Finished }),
		number("limit", fmt.Sprintf("The largest number of jobs in the answer; without it %d.", MaxLimit), func(q *view.Query) *int { return &q.Limit }),
		{
			Name: "after", Doc: "The next of the answer before.",
			get: func(q view.Query) string { return q.After },
			set: func(q *view.Query, v string) error { q.After = v; return nil },
		},
	}
}

// MaxLimit is the largest number of jobs in one answer.
const MaxLimit = 1000

func number(name, doc string, field func(*view.Query) *int) Parameter {
	return Parameter{
		Name: name, Doc: doc, Whole: true,
		get: func(q view.Query) string {
			if n := *field(&q); n > 0 {
				return strconv.Itoa(n)
			}
			return ""
		},
		set: func(q *view.Query, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < 0 {
				return fmt.Errorf("want a whole number from 0, found %q", v)
			}
			*field(q) = n
			return nil
		},
	}
}

// Encode writes a query as the parameters of a URL.
func Encode(q view.Query) url.Values {
	values := url.Values{}
	for _, p := range queryParameters() {
		if v := p.get(q); v != "" {
			values.Set(p.Name, v)
		}
	}
	return values
}

// Decode reads the parameters of a URL.
func Decode(values url.Values) (view.Query, error) {
	var q view.Query
	known := queryParameters()
	for name, given := range values {
		i := slices.IndexFunc(known, func(p Parameter) bool { return p.Name == name })
		if i < 0 {
			return q, unknownParameter(name, known)
		}
		if len(given) != 1 {
			return q, fmt.Errorf("%s: given %d times, want it once", name, len(given))
		}
		if err := known[i].set(&q, given[0]); err != nil {
			return q, fmt.Errorf("%s: %w", name, err)
		}
	}
	if q.Limit == 0 || q.Limit > MaxLimit {
		q.Limit = MaxLimit
	}
	return q, nil
}

func unknownParameter(name string, known []Parameter) error {
	names := make([]string, len(known))
	for i, p := range known {
		names[i] = p.Name
	}
	if near := train.NearMiss(name, names); near != "" {
		return fmt.Errorf("%s: no such parameter (did you mean %s?)", name, near)
	}
	return fmt.Errorf("%s: no such parameter; there are %s", name, strings.Join(names, ", "))
}

// UnknownStateError reports that a word is no state of jobs. Fix says which are.
type UnknownStateError struct{ Word, Fix string }

// Error implements error.
func (e *UnknownStateError) Error() string { return fmt.Sprintf("%q: no such state", e.Word) }

// States reads the names of states.
func States(words []string) ([]train.State, error) {
	var known []string
	for _, t := range train.Transitions() {
		if t.To != train.SameState && !slices.Contains(known, string(t.To)) {
			known = append(known, string(t.To))
		}
	}
	var states []train.State
	for _, word := range words {
		clean := strings.ToLower(strings.TrimSpace(word))
		if !slices.Contains(known, clean) {
			fix := "states are " + strings.Join(known, ", ")
			if near := train.NearMiss(clean, known); near != "" {
				fix = "did you mean " + near + "?"
			}
			return nil, &UnknownStateError{word, fix}
		}
		states = append(states, train.State(clean))
	}
	return states, nil
}
