package event

import (
	"strings"
	"sync"
	"time"
)

// The streams.
const (
	StreamJobs      = "JOBS"
	StreamPlans     = "PLANS"
	StreamDecisions = "DECISIONS"
	StreamSamples   = "SAMPLES"
	StreamEnergy    = "ENERGY"
	StreamTune      = "TUNE"
	StreamNet       = "NET"
	StreamNodes     = "NODES"
	StreamPeople    = "PEOPLE"
	StreamAccess    = "ACCESS"
	StreamPoison    = "POISON"
)

// MaxFactsPerSubject bounds the facts of one kind about one job: beyond it the oldest goes.
const MaxFactsPerSubject = 100_000

// Stream describes one stream. All are stored in files. All but SAMPLES refuse new messages when full, rather than drop
// old ones unseen.
type Stream struct {
	Name     string
	Subjects []string
	MaxAge   time.Duration
	MaxBytes int64
	// DropOld lets the oldest messages go when the stream is full: for telemetry only.
	DropOld bool
	Doc     string
	// Loss says what is lost with it, beyond what a backup has.
	Loss string
}

// Streams returns the table of streams.
func Streams() []Stream {
	const day = 24 * time.Hour
	const gib = int64(1) << 30
	return []Stream{
		{
			StreamJobs,
			[]string{"yard.job.>"},
			30 * day, 4 * gib, false,
			"The facts of jobs, in the one order that the register folds.", "submissions without a record, and the history; the register stays as it is",
		},
		{
			StreamPlans,
			[]string{"yard.plan.>"},
			30 * day, gib, true,
			"Plans, one message each, appended by compare-and-swap.", "nothing that counts: the planner decides again",
		},
		{
			StreamDecisions,
			[]string{"yard.decision.>"},
			30 * day, gib, true,
			"The input of each published plan: `switchyard replay` decides on it again.", "what `switchyard replay` reads",
		},
		{
			StreamSamples,
			[]string{"yard.sample.>", "yard.energy.>", "yard.probe.>"},
			time.Hour, gib, true,
			"Heartbeats, meter readings, and counts of probes.", "energy measured and not yet booked (seconds)",
		},
		{StreamEnergy, []string{"yard.ledger.>"}, 30 * day, gib, false, "Final energy accounts.", "the facts of accounts; the ledger stays as it is"},
		{StreamTune, []string{"yard.tune.>"}, 30 * day, gib, false, "The facts of experiments.", "the history of experiments; their records stay as they are"},
		{StreamNet, []string{"yard.net.>"}, 30 * day, gib / 4, true, "Links of the network that lose or delay packets.", "the history of links"},
		{StreamNodes, []string{"yard.node.>"}, 30 * day, gib / 16, true, "Requests about nodes, and what the planner decides about them.", "orders that the planner has not seen yet"},
		{StreamPeople, []string{"yard.user.>", "yard.tenant.>"}, 400 * day, gib / 16, false, "Requests about users and tenants.", "requests that admission has not seen yet"},
		{StreamAccess, []string{"yard.access.>"}, 90 * day, gib / 32, true, "What people asked for and may not do.", "the refusals that `switchyard events --audit` shows"},
		{
			StreamPoison,
			[]string{"yard.poison.>"},
			30 * day, gib / 4, true,
			"Messages that could not be handled, with the reason.", "the messages that were set aside",
		},
	}
}

// StreamOf returns the stream that stores a subject; empty if none does.
func StreamOf(s Subject) string { return streamOf()[s.Entity] }

var streamOf = sync.OnceValue(func() map[string]string { //nolint:gochecknoglobals // a constant, made once
	names := map[string]string{}
	for _, stream := range Streams() {
		for _, subject := range stream.Subjects {
			names[strings.TrimSuffix(strings.TrimPrefix(subject, "yard."), ".>")] = stream.Name
		}
	}
	return names
})
