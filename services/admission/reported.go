package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// reported lets the agents of other machines report about their nodes and about the attempts that run there, and about
// no others. An agent has read the record of an attempt before it reports about it.
type reported struct {
	bus      *bus.Bus
	jobs     *bus.KV[train.Job]
	attempts *bus.KV[train.Attempt]
	refusals *audit.Refusals
	log      *slog.Logger
	// known are attempts as they were read last. The relay calls allow for one report at a time.
	known map[train.JobID]train.Attempt
}

// mostKnown bounds what is remembered: an attempt costs a read.
const mostKnown = 10_000

func newReported(ctx context.Context, b *bus.Bus, jobs *bus.KV[train.Job], log *slog.Logger) (*reported, error) {
	r := &reported{bus: b, jobs: jobs, refusals: audit.New(b, log, time.Now), log: log, known: map[train.JobID]train.Attempt{}}
	return r, bus.Open(ctx, b, contract.Attempts, &r.attempts)
}

// allow returns bus.ErrForeign if an agent reports about another node, or about an attempt that is not on its node.
func (r *reported) allow(ctx context.Context, node string, m bus.Message) error {
	if kind, found := event.Find(m.Parsed); found && identity.AboutNode(kind) && m.Parsed.ID == node {
		return nil
	}
	job, number, err := reportedOf(m)
	if err == nil {
		err = r.on(ctx, train.NodeID(node), job, number)
	}
	if errors.Is(err, bus.ErrForeign) {
		r.log.Warn("refused the report of an agent", "node", node, "subject", m.Subject, "attempt", number, "error", err)
		r.refusals.Note(ctx, event.AccessRefused{Person: "node." + node, Door: "bus", Operation: "report about a job", Request: m.Subject, Message: err.Error()})
	}
	return err
}

// reportedOf returns the attempt that a report is about. Facts have it in their body, records in their key.
func reportedOf(m bus.Message) (job train.JobID, number int, err error) {
	if key, is := strings.CutPrefix(m.Subject, "$KV."+string(contract.Reports)+"."); is {
		id, attempt, _ := strings.Cut(key, ".")
		number, err = strconv.Atoi(attempt)
		job = train.JobID(id)
	} else {
		var body struct {
			Job     train.JobID `json:"job"`
			Attempt int         `json:"attempt"`
		}
		if err = errors.Join(m.ParseErr, m.BodyErr); err == nil {
			err = json.Unmarshal(m.Data, &body)
		}
		job, number = train.JobID(m.Parsed.ID), body.Attempt
		if err == nil && body.Job != "" && body.Job != job {
			err = fmt.Errorf("the body is about %.80q", body.Job) //nolint:err113 // it is wrapped below
		}
	}
	if err != nil {
		return job, number, fmt.Errorf("%w: %.200s: %w", bus.ErrForeign, m.Subject, err)
	}
	return job, number, nil
}

// on returns nil if an attempt has a part on a node.
func (r *reported) on(ctx context.Context, node train.NodeID, job train.JobID, number int) error {
	if a := r.known[job]; a.Number == number && on(a, node) {
		return nil
	}
	e, err := r.attempts.Get(ctx, string(job))
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return err
	}
	newest := e.Value
	switch {
	case err == nil && newest.Number == number && on(newest, node):
		if len(r.known) >= mostKnown {
			clear(r.known)
		}
		r.known[job] = newest
		return nil
	case err != nil || newest.Number < number:
		return r.unknown(ctx, job, number)
	case newest.Number > number:
		started, err := r.started(ctx, job, number)
		if err != nil || on(started, node) {
			return err
		}
	}
	return fmt.Errorf("%w: attempt %d of %s does not run on %s", bus.ErrForeign, number, job, node)
}

// on reports whether an attempt has a process on a node, or its executor is that of the node.
func on(a train.Attempt, node train.NodeID) bool {
	serves := slices.ContainsFunc(a.ServerParts(), func(p train.ServerPart) bool { return p.Node == node })
	return a.Number > 0 && (a.IsOn(node) || a.Machine == node || serves)
}

// unknown is why a report about an attempt without a record is not taken. While the job has not ended, the record may
// be late at the server that was asked.
func (r *reported) unknown(ctx context.Context, job train.JobID, number int) error {
	e, err := r.jobs.Get(ctx, string(job))
	if err == nil && !e.Value.State.Terminal() {
		return fmt.Errorf("%w: attempt %d of %s has no record yet", errLater, number, job)
	}
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%w: there is no attempt %d of %s", bus.ErrForeign, number, job)
}

var errLater = errors.New("try again")

// started returns where an earlier attempt ran, from the fact of its start: an agent whose bus was away reports late.
func (r *reported) started(ctx context.Context, job train.JobID, number int) (a train.Attempt, err error) {
	subject := event.JobSubject(job, event.FactStarted).String()
	err = r.bus.Stored(ctx, event.StreamJobs, []string{subject}, time.Time{}, func(m bus.Message) {
		if s, err := event.Decode[event.Started](m.Data); err == nil && s.Attempt == number {
			a = train.Attempt{Job: job, Number: number, Node: s.Node, Machine: s.Machine, Parts: s.Parts}
		}
	})
	return a, err
}
