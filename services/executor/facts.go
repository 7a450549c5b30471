package executor

import (
	"fmt"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

func startedFact(a train.Attempt, spec train.Spec, mounts bool) event.Fact {
	batch := launch.LocalBatch(spec, a)
	if batch == spec.BatchSize {
		batch = 0
	}
	f := event.JobFact(a.Job, event.FactStarted, fmt.Sprintf("attempt/%d/started", a.Number), event.Started{
		FromScratch: a.FromScratch,
		Attempt:     a.Number, Generation: a.Generation, Node: a.Places()[0].Node, Machine: a.Machine, Devices: train.AllDevices(a.Places()), Parts: a.Parts, Memory: a.Memory, EpochsDone: a.StartedEpochs, Enforcement: a.Enforcement,
		Servers: a.ServerCount, Mounts: mounts, BatchSize: batch,
	})
	f.Time = a.StartedAt
	return f
}

func stopFact(a train.Attempt, reason train.Reason, r train.AttemptReport) event.Fact {
	signal := r.Signal
	if r.Spoke {
		signal = ""
	}
	f := event.JobFact(a.Job, event.FactStopRequested, fmt.Sprintf("attempt/%d/stop/%d/%s", a.Number, a.StopSince.UnixMilli(), a.Stop),
		event.StopRequested{Attempt: a.Number, Cause: a.Stop, Reason: reason, AnyStep: r.AnyStep, Signal: signal})
	f.Time = a.StopSince
	return f
}

func withdrawnFact(a train.Attempt, generation uint64) event.Fact {
	return event.JobFact(a.Job, event.FactStopWithdrawn, fmt.Sprintf("attempt/%d/stop_withdrawn/%d", a.Number, a.StopSince.UnixMilli()),
		event.StopWithdrawn{Attempt: a.Number, Cause: a.Stop, Generation: generation})
}

// endFact returns the fact about the outcome of an attempt with report r. needs is the memory that the next attempt
// needs, if known.
func endFact(a train.Attempt, r train.AttemptReport, v diff.Verdict, needs unit.Bytes) event.Fact {
	attempt := fmt.Sprintf("attempt/%d/end", a.Number)
	exit, ran := diff.Exit(a), event.Ran{Places: a.Places(), ClaimedAt: a.ClaimedAt}
	// Each life of a job ends once.
	end := func(fact string, body any) event.Fact {
		if a.Resumed > 0 {
			return event.JobFact(a.Job, fact, fmt.Sprintf("end/%d", a.Resumed), body)
		}
		return event.OnceFact(a.Job, fact, "end", body)
	}
	var f event.Fact
	switch a.Outcome {
	case train.OutcomeSucceeded:
		f = end(event.FactSucceeded, event.Succeeded{Attempt: a.Number, EpochsDone: v.EpochsDone, Note: v.Note, Resumed: a.Resumed})
	case train.OutcomeCancelled:
		f = end(event.FactCancelled, event.Cancelled{Attempt: a.Number, EpochsDone: v.EpochsDone, Resumed: a.Resumed})
	case train.OutcomePreempted:
		f = event.JobFact(a.Job, event.FactPreempted, attempt, event.Preempted{Attempt: a.Number, Cause: a.Stop, EpochsDone: v.EpochsDone, Forced: v.Forced, Resume: v.Resume})
	case train.OutcomeRecovering:
		f = event.JobFact(a.Job, event.FactAttemptLost, attempt, event.AttemptLost{
			Attempt: a.Number, EpochsDone: v.EpochsDone, Exit: exit, RetrySeconds: v.Retry.Seconds(), Retry: v.Retries, Needs: needs, Enlarged: r.Enlarged, Resume: v.Resume, Ran: ran,
		})
	case train.OutcomeFailed, train.OutcomeNone:
		f = end(event.FactFailed, event.Failed{Attempt: a.Number, EpochsDone: v.EpochsDone, Exit: exit, Reason: v.Reason, Enlarged: r.Enlarged, Resumed: a.Resumed, Ran: ran})
	}
	f.Time = a.ExitedAt
	return f
}

// retunedFact returns the fact about the system parameters that an attempt has now. While some are pending, the fact
// has a different key.
func retunedFact(experiment train.JobID, a train.Applied, pending []string) event.Fact {
	key := fmt.Sprintf("job/%s/attempt/%d/setting/%d", a.Job, a.Attempt, a.Generation)
	if len(pending) > 0 {
		key += "/without/" + strings.Join(pending, "+")
	}
	f := event.TuneFact(string(experiment), event.FactRetuned, key, event.Retuned{Applied: a})
	f.Time = a.At
	return f
}
