package jobapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/outbox"
	"github.com/switchyard-dl/switchyard/services/nodeagent/roster"
)

// API answers training code.
type API struct {
	node       train.NodeID
	bus        *bus.Bus
	reports    *bus.KV[train.AttemptReport]
	roster     *roster.Roster
	box        *outbox.Box
	epochEnded func(event.EpochMark)
	usesMemory func(train.Attempt, unit.Bytes) unit.Bytes
	tuned      func(train.Attempt) (train.TunedTenant, uint64, bool)
	since      func(train.Attempt, time.Time) time.Time
	paused     func(ctx context.Context, job train.JobID, epochsDone int) bool
	log        *slog.Logger

	sessions sessions
	beats    chan event.Fact
	requests *prometheus.CounterVec
	dropped  prometheus.Counter
}

// Config is what an API needs.
type Config struct {
	Node    train.NodeID
	Bus     *bus.Bus
	Reports *bus.KV[train.AttemptReport]
	Roster  *roster.Roster
	Outbox  *outbox.Box
	// EpochEnded hears of the end of an epoch once it is kept. Nil for nobody.
	EpochEnded func(event.EpochMark)
	// UsesMemory hears what an attempt says to use of each of its devices, and gives the most that is known of any of them. Nil: nothing else is known.
	UsesMemory func(train.Attempt, unit.Bytes) unit.Bytes
	// Tuned gives the micro-batch that is wanted of an attempt, and its generation; false where none is. Nil: of none.
	Tuned func(train.Attempt) (train.TunedTenant, uint64, bool)
	// BatchesSince gives since when the micro-batches on an attempt's devices are what they are now. Nil: always.
	BatchesSince func(a train.Attempt, now time.Time) time.Time
	// Paused says whether a job that has done so many epochs is to leave and wait. Nil: none is.
	Paused  func(ctx context.Context, job train.JobID, epochsDone int) bool
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// New makes an API. Its loops RunHeartbeats and the outbox's, with DeliverKept, are the caller's to run.
func New(c Config) *API {
	a := &API{
		node: c.Node, bus: c.Bus, reports: c.Reports, roster: c.Roster, box: c.Outbox, epochEnded: c.EpochEnded, usesMemory: c.UsesMemory, tuned: c.Tuned, since: c.BatchesSince,
		paused: c.Paused, log: c.Log,
		sessions: sessions{byJob: map[train.JobID]*session{}}, beats: make(chan event.Fact, beatsQueued),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "switchyard_nodeagent_job_requests_total", Help: "Requests of training code by request and status.",
		}, []string{"request", "status"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "switchyard_nodeagent_heartbeats_dropped_total", Help: "Heartbeats that were dropped because the bus did not keep up or was away.",
		}),
	}
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "switchyard_nodeagent_outbox_facts", Help: "Facts on disk that wait for the bus.",
	}, func() float64 { return float64(c.Outbox.Len()) })
	c.Metrics.MustRegister(a.requests, a.dropped, waiting)
	return a
}

// Handler routes the requests.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, route := range []struct {
		method, path string
		serve        func(context.Context, call) (answer, *refusal)
	}{
		{http.MethodGet, "/has_to_stop/{capability}", a.hasToStop},
		{http.MethodPost, "/profiling/{capability}", a.profiling},
		{http.MethodPost, "/end_epoch/{capability}", a.endEpoch},
		{http.MethodPost, "/signal_end/{capability}", a.signalEnd},
		{http.MethodPost, "/v1/jobs/{capability}/steps", a.steps},
		{http.MethodPost, "/v1/jobs/{capability}/epochs", a.epochs},
		{http.MethodPost, "/v1/jobs/{capability}/checkpoints", a.checkpoints},
		{http.MethodGet, "/v1/jobs/{capability}/control", a.control},
		{http.MethodPost, "/v1/jobs/{capability}/end", a.end},
	} {
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

// call is one request after it was found out whose it is.
type call struct {
	session *session
	body    []byte
	query   func(string) string
	now     time.Time
	// overheard says that the code did not call itself: it cannot be asked to leave.
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

func badRequest(problems []problem) *refusal {
	return &refusal{http.StatusBadRequest, "BadRequest", describe(problems), "correct the named fields"}
}

func (a *API) serve(name string, f func(context.Context, call) (answer, *refusal)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
		if err != nil {
			a.refuse(w, name, &refusal{http.StatusRequestEntityTooLarge, "TooLarge", fmt.Sprintf("read the body: %v", err), "send at most 64 KiB"})
			return
		}
		attempt, refused := a.identify(r.Context(), r.PathValue("capability"), r.PathValue("token"))
		if refused != nil {
			a.refuse(w, name, refused)
			return
		}
		s := a.session(r.Context(), attempt)
		said, refused := f(r.Context(), call{session: s, body: body, query: r.URL.Query().Get, now: time.Now()})
		if refused != nil {
			a.refuse(w, name, refused)
			return
		}
		if !said.overheard {
			a.noteSpoke(r.Context(), s)
		}
		a.requests.WithLabelValues(name, "200").Inc()
		if said.json == nil {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(w, said.text)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(said.json)
	})
}

// session is what is remembered of an attempt, as it stands now.
func (a *API) session(ctx context.Context, attempt train.Attempt) *session {
	s := a.sessions.of(attempt, func(old train.Attempt) bool { return !a.roster.Holds(old.Job, old.Number) })
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

// identifyTimeout leaves a client, which waits two seconds, the time to hear the answer.
const identifyTimeout = 1500 * time.Millisecond

// identify finds the attempt that calls. With a token it must be the newest attempt of the job; without one the newest is meant. What this process knows
// may be a moment old, so nobody is turned away before the bucket itself was asked.
func (a *API) identify(ctx context.Context, capability, token string) (train.Attempt, *refusal) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	unavailable := func(err error) *refusal {
		a.log.Debug("attempt not identified", "error", err)
		return &refusal{http.StatusServiceUnavailable, "Unavailable", "the scheduler's records cannot be read at the moment", "try again"}
	}
	attempt, err := a.roster.Find(ctx, capability)
	switch {
	case errors.Is(err, roster.ErrUnknown):
		return attempt, &refusal{http.StatusNotFound, "UnknownJob", "no job has this JOB_UUID", "use the JOB_UUID of the environment as it is"}
	case err != nil:
		return attempt, unavailable(err)
	}
	tokenHash := ""
	if token != "" {
		tokenHash = roster.Hash(token)
	}
	if a.current(attempt, tokenHash) {
		return attempt, nil
	}
	if attempt, err = a.roster.Refresh(ctx, attempt.Job); err != nil {
		return attempt, unavailable(err)
	}
	if a.current(attempt, tokenHash) {
		return attempt, nil
	}
	return attempt, &refusal{
		http.StatusConflict, "FencedOff", "this attempt of the job has ended or was replaced by a newer one",
		"stop: what it reports is no longer recorded",
	}
}

// current says whether this agent serves the attempt. The ranks of a gang over several nodes all come to one agent: were they told apart when to stop, those
// that go on would wait for those that left.
func (a *API) current(attempt train.Attempt, tokenHash string) bool {
	return attempt.Live() && attempt.Home() == a.node && (tokenHash == "" || roster.SameHash(attempt.TokenHash, tokenHash))
}
