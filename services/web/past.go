package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// momentOf reads the parameter at; given is false without one.
func momentOf(r *http.Request) (at time.Time, given bool, err error) {
	values := r.URL.Query()
	text := values.Get("at")
	if text == "" {
		return at, false, nil
	}
	if at, err = time.Parse(time.RFC3339, text); err != nil {
		return at, false, fmt.Errorf("at: want a time such as 2026-01-31T23:59:00Z, found %q", text)
	}
	return at, true, nil
}

// plan answers with the newest plan, or with that in force at a time.
func (s server) plan(route api.Route, r *http.Request) (answer, error) {
	at, given, err := momentOf(r)
	if err != nil {
		return answer{}, err
	}
	var newest *train.Plan
	position := s.known.read(func(x *index.Index) { newest = x.Plan() })
	if !given {
		return answer{position: position, body: s.plans.text(newest)}, nil
	}
	then, err := s.planAt(r.Context(), at)
	switch {
	case errors.Is(err, errForgotten):
		return answer{}, problemError{problem(http.StatusNotFound, err.Error(), "plans are kept for 30 days")}
	case err != nil:
		return answer{}, err
	case then == nil:
		then = newest
	}
	return answer{body: then}, nil
}

// planText is the newest plan as it is answered: every page asks for each plan, which is made into text once.
type planText struct {
	mu   sync.Mutex
	plan *train.Plan
	json encoded
}

func (t *planText) text(plan *train.Plan) encoded {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.plan != plan {
		t.plan = plan
		t.json, _ = json.Marshal(plan) // it came as JSON
	}
	return t.json
}

// errForgotten says that no plan of a time is kept.
var errForgotten = errors.New("no plan of that time is kept")

// planAt reads the plan that was in force at a time; nil if that is the newest one. The bus finds the first plan that
// was stored later, and the one before it is the answer.
func (s server) planAt(ctx context.Context, at time.Time) (*train.Plan, error) {
	var later uint64
	err := s.bus.StoredWhile(ctx, event.StreamPlans, nil, at, func(m bus.Message) bool {
		later = m.Sequence
		return false
	})
	if err != nil {
		return nil, unavailable(err)
	}
	if later == 0 {
		return nil, nil //nolint:nilnil // the newest plan was in force
	}
	if later == 1 {
		return nil, errForgotten
	}
	m, err := s.bus.At(ctx, event.StreamPlans, later-1)
	if errors.Is(err, bus.ErrNotFound) {
		return nil, errForgotten
	}
	if err != nil {
		return nil, unavailable(err)
	}
	decided, err := event.Decode[event.PlanDecided](m.Data)
	if err != nil {
		return nil, problemError{problem(http.StatusBadGateway, err.Error(), "")}
	}
	return &decided.Plan, nil
}

// minutes answers with what the meters of all nodes showed in a minute: the last but one, unless a time is given.
func (s server) minutes(route api.Route, r *http.Request) (answer, error) {
	at, given, err := momentOf(r)
	if err != nil {
		return answer{}, err
	}
	if !given {
		at = s.now().Add(-2 * time.Minute)
	}
	found, err := recordsOf(r.Context(), s, contract.Minutes, contract.MinutePattern(at))
	return answer{body: found}, err
}

// mostForecasts bounds the plans that are read for the history of a forecast.
const mostForecasts = 40

// forecasts answers with what plans at regular times of a job's life predicted of it.
func (s server) forecasts(route api.Route, r *http.Request) (answer, error) {
	q, err := route.Decode(r.URL.Query())
	if err != nil {
		return answer{}, err
	}
	var job train.Job
	var newest *train.Plan
	if _, err := s.find(r, q.User, func(x *index.Index, found train.Job) { job, newest = found, x.Plan() }); err != nil {
		return answer{}, err
	}
	if _, err := s.callerInTime(r); err != nil {
		return answer{}, err
	}
	until := s.now()
	if job.State.Terminal() {
		until = job.FinishedAt
	}
	all := []view.Forecast{}
	for n := range mostForecasts {
		then, err := s.planAt(r.Context(), job.SubmittedAt.Add(until.Sub(job.SubmittedAt)*time.Duration(n+1)/mostForecasts))
		switch {
		case errors.Is(err, errForgotten):
			continue
		case err != nil:
			return answer{}, err
		case then == nil:
			then = newest
		}
		p := then.Predicted(job.ID)
		if last := len(all) - 1; p.Finish == nil || last >= 0 && !then.DecidedAt.After(all[last].At) {
			continue
		}
		all = append(all, view.Forecast{At: then.DecidedAt, Predicted: p})
	}
	return answer{body: all}, nil
}
