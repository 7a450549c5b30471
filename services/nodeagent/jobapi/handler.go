package jobapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/strict"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/attemptindex"
	"github.com/switchyard-dl/switchyard/services/nodeagent/outbox"
)

// API serves training code.
type API struct {
	*recorder
	callers    identifier
	epochEnded func(event.EpochMark)
	usesMemory func(train.Attempt, unit.Bytes) unit.Bytes
	tuned      func(train.Attempt) (train.TunedJob, uint64, bool)
	since      func(train.Attempt, time.Time) time.Time
	paused     func(ctx context.Context, job train.JobID, epochsDone int) bool

	sessions sessions
	// beats are the heartbeats that wait for the bus.
	beats *beats
	// full is set while JOBS is almost full.
	full     atomic.Bool
	dropped  prometheus.Counter
	requests *prometheus.CounterVec
}

// Config is what an API needs.
type Config struct {
	Node     train.NodeID
	Bus      *bus.Bus
	Reports  *bus.KV[train.AttemptReport]
	Attempts *attemptindex.Index
	Outbox   *outbox.Box
	// EpochEnded is called with the end of an epoch once it is stored. It may be nil.
	EpochEnded func(event.EpochMark)
	// UsesMemory takes the memory that an attempt reports for each of its devices, and returns the most that is known
	// for any of them. If nil, nothing else is known.
	UsesMemory func(train.Attempt, unit.Bytes) unit.Bytes
	// Tuned returns the micro-batch that is wanted of an attempt, and its generation; false if none is. If nil, none
	// ever is.
	Tuned func(train.Attempt) (train.TunedJob, uint64, bool)
	// BatchesSince returns the time of the last change of a micro-batch on an attempt's devices. If nil, none ever
	// changed.
	BatchesSince func(a train.Attempt, now time.Time) time.Time
	// Paused reports whether a job with this many finished epochs has to leave and wait. If nil, none has to.
	Paused  func(ctx context.Context, job train.JobID, epochsDone int) bool
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// New makes an API. The caller runs the loops: RunHeartbeats, RunHeld, and the outbox's with DeliverKept.
func New(c Config) *API {
	auto := promauto.With(c.Metrics)
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "switchyard_nodeagent_outbox_facts", Help: "Facts on disk that wait for the bus."},
		func() float64 { return float64(c.Outbox.Len()) })
	return &API{
		recorder:   &recorder{bus: c.Bus, reports: c.Reports, box: c.Outbox, log: c.Log},
		callers:    identifier{node: c.Node, attempts: c.Attempts, log: c.Log},
		epochEnded: c.EpochEnded, usesMemory: c.UsesMemory, tuned: c.Tuned, since: c.BatchesSince, paused: c.Paused,
		sessions: sessions{byJob: map[train.JobID]*session{}}, beats: newBeats(),
		dropped: auto.NewCounter(prometheus.CounterOpts{
			Name: "switchyard_nodeagent_heartbeats_dropped_total", Help: "Heartbeats that were dropped because the bus did not keep up or was unreachable.",
		}),
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "switchyard_nodeagent_job_requests_total", Help: "Requests of training code by request and status.",
		}, []string{"request", "status"}),
	}
}

// route is a request of training code.
type route struct {
	method, path string
	serve        func(context.Context, call) (answer, *refusal)
}

// routes is the table of the requests.
func (a *API) routes() []route {
	return []route{
		{http.MethodGet, "/has_to_stop/{capability}", a.hasToStop},
		{http.MethodPost, "/profiling/{capability}", reading(a.profiling)},
		{http.MethodPost, "/end_epoch/{capability}", reading(a.endEpoch)},
		{http.MethodPost, "/signal_end/{capability}", a.signalEnd},
		{http.MethodPost, "/v1/jobs/{capability}/steps", reading(a.steps)},
		{http.MethodPost, "/v1/jobs/{capability}/epochs", reading(a.epochs)},
		{http.MethodPost, "/v1/jobs/{capability}/checkpoints", reading(a.checkpoints)},
		{http.MethodPost, "/v1/jobs/{capability}/progress", reading(a.progress)},
		{http.MethodPost, "/v1/jobs/{capability}/trainer-status", a.trainerStatus},
		{http.MethodGet, "/v1/jobs/{capability}/control", a.control},
		{http.MethodPost, "/v1/jobs/{capability}/end", reading(a.end)},
	}
}

// reading parses and checks the body of a request, and calls f with it or refuses the request.
func reading[B interface{ check() strict.Problems }](f func(context.Context, call, B) (answer, *refusal)) func(context.Context, call) (answer, *refusal) {
	return func(ctx context.Context, c call) (answer, *refusal) {
		var b B
		if problems := parseAndCheck(c.body, &b, func() strict.Problems { return b.check() }); problems != nil {
			return answer{}, badRequest(problems)
		}
		return f(ctx, c, b)
	}
}

// Handler routes the requests.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, route := range a.routes() {
		h := a.serve(route.path, route.serve)
		mux.Handle(route.method+" "+route.path, h)
		mux.Handle(route.method+" /attempt/{token}"+route.path, h)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, "unknown", &refusal{
			http.StatusNotFound, "NotFound", fmt.Sprintf("there is no request %.10s %.100q", r.Method, r.URL.Path),
			"see the list of requests in the documentation of the job API",
		})
	})
	return mux
}

// call is one request of an identified attempt.
type call struct {
	session *session
	body    []byte
	query   func(string) string
	now     time.Time
	// overheard is set if the code did not call itself, so that it cannot be asked to leave.
	overheard bool
}

// answer is the text or the JSON value of a 200.
type answer struct {
	text      string
	json      any
	overheard bool
}

// refusal is any other answer.
type refusal struct {
	status              int
	code, message, hint string
}

func badRequest(problems strict.Problems) *refusal {
	return &refusal{http.StatusBadRequest, "BadRequest", describe(problems), "correct the named fields"}
}

func (a *API) serve(name string, f func(context.Context, call) (answer, *refusal)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
		if err != nil {
			a.refuse(w, name, &refusal{http.StatusRequestEntityTooLarge, "TooLarge", fmt.Sprintf("read the body: %v", err), "send at most 64 KiB"})
			return
		}
		attempt, refused := a.callers.identify(r.Context(), r.PathValue("capability"), cmp.Or(r.PathValue("token"), bearer(r)))
		if refused != nil {
			a.refuse(w, name, refused)
			return
		}
		s := a.session(r.Context(), attempt)
		given, refused := f(r.Context(), call{session: s, body: body, query: r.URL.Query().Get, now: time.Now()})
		if refused != nil {
			a.refuse(w, name, refused)
			return
		}
		if !given.overheard {
			a.noteSpoke(r.Context(), s)
		}
		a.requests.WithLabelValues(name, "200").Inc()
		if given.json == nil {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(w, given.text)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(given.json)
	})
}

// session returns what is remembered of an attempt, updated to its present state.
func (a *API) session(ctx context.Context, attempt train.Attempt) *session {
	s := a.sessions.of(attempt, func(old train.Attempt) bool { return !a.callers.attempts.Holds(old.Job, old.Number) })
	a.load(ctx, s)
	s.update(attempt)
	return s
}

func (a *API) refuse(w http.ResponseWriter, name string, r *refusal) {
	a.requests.WithLabelValues(name, strconv.Itoa(r.status)).Inc()
	a.log.Debug("request refused", "request", name, "status", r.status, "code", r.code, "reason", r.message)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": r.code, "message": r.message, "hint": r.hint}})
}
