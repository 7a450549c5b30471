package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/throttle"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/explain"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/page"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// server answers the questions of the API.
type server struct {
	url   string
	bus   *bus.Bus
	known *known
	told  *told
	plans *planText
	// door knows who asks, refusals stores what they may not do, floods what they may not do so often: a person who
	// asks too often hides no other's refusal.
	door             *door
	refusals, floods *audit.Refusals
	rates            *throttle.Rates
	uploading        *underWay
	reading          *reading
	terminals        *underWay
	now              func() time.Time
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
		api.RouteAbout:    s.about,
		api.RouteJobs:     listed(s, func(x *index.Index, q view.Query) (view.Page, error) { return view.Jobs(x, q, s.now()) }),
		api.RouteJob:      s.job,
		api.RouteExplain:  s.explain,
		api.RouteStands:   s.standing,
		api.RouteWhatIf:   s.whatIf,
		api.RouteRehearse: s.rehearse,
		api.RouteEpochs:   s.epochs,
		api.RouteForecast: s.forecasts,
		api.RouteSuggest:  s.suggest,
		api.RouteRecords:  s.records,
		api.RouteLog:      executor[rpc.LogRequest, rpc.LogChunk](s, access.ReadOutput, rpc.LogSubject, logQuestion),
		api.RouteFiles:    executor[rpc.FileRequest, rpc.FileAnswer](s, access.ReadFiles, rpc.FileSubject, fileQuestion),
		api.RouteNodes:    listed(s, func(x *index.Index, q view.Query) (any, error) { return view.Nodes(x, q, s.now()), nil }),
		api.RoutePlan:     s.plan,
		api.RouteOutlook:  s.policies,
		api.RouteMinutes:  s.minutes,
		api.RouteEnergy:   s.energy,
		api.RouteLedger:   s.ledger,
		api.RouteNetwork:  s.network,
		api.RoutePaths:    s.networkPaths,
		api.RouteGroups:   s.groups,
		api.RouteTruth:    s.truth,
		api.RouteAudit:    s.audit,
		api.RouteSearches: s.experiments,
		api.RouteSearch:   s.experiment,
		api.RouteTrials:   s.experimentRecord,
		api.RouteUsers:    listed(s, func(x *index.Index, q view.Query) (any, error) { return view.List(x.Users, q), nil }),
		api.RouteTenants:  listed(s, func(x *index.Index, q view.Query) (any, error) { return view.List(x.Tenants, q), nil }),
		api.RouteLink:     s.door.postLink,
		api.RouteModels:   listed(s, func(x *index.Index, q view.Query) (any, error) { return view.List(x.Models, q), nil }),
	}
	mux := http.NewServeMux()
	for _, r := range api.Routes() {
		handle := answering(r, answers[r.Name])
		switch {
		case r.Streams:
			handle = s.changes
		case r.Fact.Fact != "":
			handle = answering(r, s.publish)
		case r.Name == api.RouteTerminal:
			handle = s.terminal
		case r.Name == api.RouteUpload:
			handle = s.receive(r)
		case r.Name == api.RouteLogin:
			handle = s.door.login
		case r.Name == api.RouteLogout:
			handle = s.door.logout
		}
		mux.Handle(r.Method+" "+r.Path, queried(r, handle))
	}
	for _, name := range page.Names() {
		mux.HandleFunc("GET /"+name, servePage(name))
	}
	mux.HandleFunc("GET /{$}", servePage(page.Start))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, problem(http.StatusNotFound, fmt.Sprintf("%s %s: no such question", r.Method, r.URL.Path), "this is switchyard "+build.This().Version+": docs/openapi.json of that version lists them"))
	})
	return mux
}

// queried refuses a query that cannot be read, or has a parameter that the route does not know. URL.Query leaves out
// what it cannot read, and the answer would be that to another question.
func queried(route api.Route, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			writeProblem(w, problem(http.StatusBadRequest, fmt.Sprintf("the query %.200q: %v", r.URL.RawQuery, err), "join parameters by &, and write % as %25"))
			return
		}
		if _, err := route.Decode(values); err != nil {
			writeProblem(w, asProblem(err))
			return
		}
		next(w, r)
	}
}

// answering writes what f returns, or the problem.
func answering(route api.Route, f func(api.Route, *http.Request) (answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		run.AnswerWithin(w, waiting+answerTime)
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

// servePage serves a file of the page. Without a session the first one has the status 401, and says how to log in.
func servePage(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		run.AnswerWithin(w, answerTime)
		file := page.Get(name)
		w.Header().Set("Content-Type", file.Type)
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", file.Tag)
		if _, known := askerOf(r.Context()); !known && name == page.Start {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write(file.Data)
			return
		}
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(file.Data))
	}
}

func (s server) about(_ api.Route, r *http.Request) (answer, error) {
	person, err := s.caller(r)
	this, may := build.This(), map[access.Operation]string{}
	for _, row := range access.Matrix() {
		may[row.Operation] = access.Allowed(person.Role, row.Operation).String()
	}
	return answer{body: api.About{Bus: s.url, Version: this.Version, Build: this, Person: person, May: may, Now: s.now(), Trouble: s.bus.Trouble()}}, err
}

// job answers with the records and the facts of a job.
func (s server) job(route api.Route, r *http.Request) (answer, error) {
	d, position, err := s.detail(route, r)
	return answer{position: position, body: d}, err
}

// explain answers with the same in sentences.
func (s server) explain(route api.Route, r *http.Request) (answer, error) {
	zone, err := zoneOf(r.URL.Query().Get("zone"))
	if err != nil {
		return answer{}, err
	}
	d, position, err := s.detail(route, r)
	return answer{position: position, body: explain.Explain(explain.Of(d), s.now().In(zone))}, err
}

// detail gathers what the caller may see of a job.
func (s server) detail(route api.Route, r *http.Request) (d view.Detail, position string, err error) {
	q, err := route.Decode(r.URL.Query())
	if err != nil {
		return d, "", err
	}
	person, err := s.caller(r)
	if err != nil {
		return d, "", err
	}
	position, err = s.find(r, q.User, func(x *index.Index, job train.Job) { d = view.Describe(x, job, s.now()) })
	for i, other := range d.Beside {
		d.Beside[i].Job = public(person, other.Job)
	}
	if err == nil && access.May(person, access.SeeSpec, ownerOf(d.Job)) != nil {
		d = d.Public()
	} else if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), waiting)
		defer cancel()
		err = s.reading.do(ctx, person.Name, func() error {
			return s.bus.Stored(ctx, event.StreamJobs, d.FactSubjects(), time.Time{}, func(m bus.Message) { d.Fact(m.Parsed.Fact, m.Data) })
		})
	}
	return d, position, err
}

// standing answers with the record of a job and what follows from it.
func (s server) standing(route api.Route, r *http.Request) (answer, error) {
	q, err := route.Decode(r.URL.Query())
	if err != nil {
		return answer{}, err
	}
	person, err := s.caller(r)
	if err != nil {
		return answer{}, err
	}
	var standing view.Standing
	position, err := s.find(r, q.User, func(x *index.Index, job train.Job) { standing = view.Stand(x, job) })
	if err == nil && standing.Home == "" && standing.Job.Attempt > 0 {
		subject := event.JobSubject(standing.Job.ID, event.FactStarted)
		if started, found, _ := bus.LastOf[event.Started](r.Context(), s.bus, event.StreamJobs, subject); found {
			standing.Home = view.HomeOf(started)
		}
	}
	standing.Job = public(person, standing.Job)
	return answer{position: position, body: standing}, err
}

// find calls f with the job that a user means. It fails if none is meant.
func (s server) find(r *http.Request, user string, f func(*index.Index, train.Job)) (position string, err error) {
	ref := r.PathValue("id")
	position = s.known.read(func(x *index.Index) {
		var job *train.Job
		if job, err = view.Find(x, ref, user); err == nil {
			f(x, *job)
		}
	})
	if err == nil {
		return position, nil
	}
	unknown, is := errors.AsType[*view.UnknownJobError](err)
	if !is {
		return "", problemError{problem(http.StatusConflict, err.Error(), "give more of the id")}
	}
	job, found := s.unread(r.Context(), ref)
	if !found {
		return "", problemError{problem(http.StatusNotFound, unknown.Error(), unknown.Fix)}
	}
	return s.known.read(func(x *index.Index) { f(x, job) }), nil
}

// unread returns the submission of an id that admission has not read yet.
func (s server) unread(ctx context.Context, ref string) (job train.Job, found bool) {
	id, err := train.ParseJobID(ref)
	if err != nil {
		return job, false
	}
	body, found, _ := bus.LastOf[event.Submitted](ctx, s.bus, event.StreamJobs, event.JobSubject(id, event.FactSubmitted))
	return view.Unread(id, body.Spec), found
}

// executor asks the executor of a node about a job.
func executor[Q, A any](s server, op access.Operation, subject func(train.NodeID) string, question func(job train.JobID, path string, offset int64) Q) func(api.Route, *http.Request) (answer, error) {
	return func(route api.Route, r *http.Request) (answer, error) {
		values := r.URL.Query()
		job, err := train.ParseJobID(values.Get("job"))
		if err != nil {
			return answer{}, err
		}
		if err := s.mayToJob(r, op, job); err != nil {
			return answer{}, err
		}
		if err := s.hasRun(job); err != nil {
			return answer{}, err
		}
		offset, err := strconv.ParseInt(cmp.Or(values.Get("offset"), "0"), 10, 64)
		if err != nil {
			return answer{}, fmt.Errorf("offset: want a whole number, found %q", values.Get("offset"))
		}
		reply, err := askService[Q, A](r.Context(), s, subject(train.NodeID(r.PathValue("id"))), question(job, values.Get("path"), offset))
		return answer{body: reply}, err
	}
}

// hasRun refuses a question about what a job has left that has never started: its node may have the folder of an
// earlier job with the same id, of another person.
func (s server) hasRun(id train.JobID) error {
	waits := false
	s.known.read(func(x *index.Index) {
		job := x.Jobs.Get(string(id))
		waits = job != nil && job.Attempt == 0 && x.Attempts.Get(string(id)) == nil
	})
	if waits {
		return problemError{problem(http.StatusConflict, fmt.Sprintf("no output and no files of job %s: it has not started", id), "")}
	}
	return nil
}

// askService asks another service. An error is a problem.
func askService[Q, A any](ctx context.Context, s server, subject string, question Q) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, waiting)
	defer cancel()
	reply, err := bus.Ask[Q, A](ctx, s.bus, subject, question)
	return reply, asked(err)
}

// asked makes a problem of the error of a question to another service.
func asked(err error) error {
	switch {
	case errors.Is(err, bus.ErrAway), errors.Is(err, context.DeadlineExceeded):
		return unavailable(err)
	case errors.Is(err, fs.ErrNotExist):
		return problemError{problem(http.StatusNotFound, err.Error(), "")}
	case errors.Is(err, fs.ErrInvalid):
		return problemError{problem(http.StatusUnprocessableEntity, err.Error(), "")}
	case err != nil:
		return problemError{problem(http.StatusBadGateway, err.Error(), "")}
	}
	return nil
}

func logQuestion(job train.JobID, _ string, offset int64) rpc.LogRequest {
	return rpc.LogRequest{Job: job, Offset: offset}
}

func fileQuestion(job train.JobID, path string, offset int64) rpc.FileRequest {
	return rpc.FileRequest{Job: job, Path: path, Offset: offset}
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
	if p.RetrySeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetrySeconds))
	}
	w.WriteHeader(p.Status)
	writeJSON(w, p)
}

// encoded is the body of an answer that is JSON already.
type encoded []byte

func writeJSON(w http.ResponseWriter, v any) {
	if text, is := v.(encoded); is {
		_, _ = w.Write(text)
		return
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the caller has gone away
}
