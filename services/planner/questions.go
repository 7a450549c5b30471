package planner

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/history"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/sim"
	"github.com/switchyard-dl/switchyard/services/planner/simrun"
	"github.com/switchyard-dl/switchyard/services/planner/whatif"
)

// Bounds of an answer: it must not keep the planner from planning, nor fill its memory.
const (
	answerTimeout = time.Minute
	// mostFacts of jobs are kept in memory for an answer, some 200 bytes each and their bodies.
	mostFacts = 500_000
)

var errNotReady = errors.New("the planner has just started and has not read all records yet")

// questions answers what-if questions from what the planner knows. It works beside the loop, one question at a time.
type questions struct {
	bus     *bus.Bus
	log     *slog.Logger
	cache   *cache
	terms   plan.State
	policy  plan.Policy
	grid    *grid
	now     func() time.Time
	timeout time.Duration
}

// run answers until ctx ends.
func (q *questions) run(ctx context.Context) error {
	return bus.Answer(ctx, q.bus, whatif.Subject, q.answer)
}

// answer answers one question. A question that has no answer is refused in words.
func (q *questions) answer(ctx context.Context, asked whatif.Question) (whatif.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	began := q.now()
	answer, err := q.simulate(ctx, asked)
	var refusal *whatif.Refusal
	switch {
	case errors.As(err, &refusal):
	case errors.Is(err, context.DeadlineExceeded):
		refusal = &whatif.Refusal{
			Message: "the planner simulates for at most " + q.timeout.String() + ", and this takes longer",
			Fix:     "ask with a shorter --since, fewer policies at a time or a longer --interval, or simulate a file of `switchyard bundle`",
		}
	case errors.Is(err, history.ErrTooMuch):
		refusal = &whatif.Refusal{Message: err.Error(), Fix: "ask with a shorter --since, or simulate a file of `switchyard bundle`"}
	default:
		q.log.Info("what-if answered", "rows", len(answer.Rows), "took", q.now().Sub(began), "error", err)
		return answer, err
	}
	return whatif.Answer{Refusal: refusal}, nil
}

func (q *questions) simulate(ctx context.Context, asked whatif.Question) (whatif.Answer, error) {
	if !q.cache.ready() {
		return whatif.Answer{}, &whatif.Refusal{Message: errNotReady.Error(), Fix: "ask again in a moment"}
	}
	h, err := q.history(ctx, asked)
	if err != nil {
		return whatif.Answer{}, err
	}
	live, err := h.Live()
	if err != nil {
		return whatif.Answer{}, &whatif.Refusal{Message: err.Error()}
	}
	simulations, err := asked.Plan(live)
	if err != nil {
		return whatif.Answer{}, err
	}
	// One after the other: the other processors are for planning.
	var runs []simrun.Run
	var results []sim.Result
	for _, one := range simulations {
		done, err := simrun.All(ctx, []sim.Config{one}, nil)
		if err != nil {
			return whatif.Answer{}, err
		}
		runs, results = append(runs, done...), append(results, done[0].Result)
	}
	answer := whatif.NewAnswer(live, simulations, results)
	for _, err := range h.Unreadable {
		answer.Unreadable = append(answer.Unreadable, err.Error())
	}
	if asked.Timeline {
		answer.Timeline, err = simrun.Timeline(runs)
	}
	return answer, err
}

// history reads what is recorded, and adds what the planner knows now.
func (q *questions) history(ctx context.Context, asked whatif.Question) (history.History, error) {
	now := q.now()
	scope := history.Scope{Made: now.UTC(), MostFacts: mostFacts}
	if asked.SinceSeconds > 0 {
		scope.Since = now.Add(-time.Duration(asked.SinceSeconds * float64(time.Second)))
	}
	scope.Nodes, scope.Models, scope.State = q.cache.recorded(q.terms)
	return history.Read(ctx, q.bus, scope)
}

// recorded returns nodes and models, and what a decision knows beside them and the jobs.
func (p *cache) recorded(terms plan.State) ([]train.Node, []train.Model, *plan.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	nodes := slices.Collect(maps.Values(p.nodes))
	slices.SortFunc(nodes, func(x, y train.Node) int { return strings.Compare(string(x.ID), string(y.ID)) })
	s := p.records().Terms(terms)
	if s.Tuning.RestartSeconds == 0 {
		s.Tuning.RestartSeconds = p.restarts.seconds()
	}
	s.Links = p.degraded()
	s.Interference = p.interference(nodes)
	for key, known := range s.Interference {
		s.Interference[key] = known.Clone() // the loop goes on predicting with its own
	}
	return nodes, slices.Collect(maps.Values(p.models)), &s
}
