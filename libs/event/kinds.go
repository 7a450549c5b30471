package event

// Kind describes one fact of the contract.
type Kind struct {
	Entity  string
	Fact    string
	Version int
	// Stream keeps the fact.
	Stream string
	// Publisher is the only service that publishes it ("anyone" for submissions and cancellations).
	Publisher string
	// Key is the pattern of its idempotency key (Nats-Msg-Id).
	Key string
	// Once is set for facts of which a job has at most one: published with expected last sequence 0.
	Once bool
	Doc  string
	// New makes a pointer to an empty body.
	New func() any
}

// Subject is the kind's subject with a placeholder for the id.
func (k Kind) Subject() string {
	return Subject{Entity: k.Entity, ID: "<id>", Fact: k.Fact, Version: k.Version}.String()
}

// The facts of a job.
const (
	FactSubmitted         = "submitted"
	FactAdmitted          = "admitted"
	FactRejected          = "rejected"
	FactConflicted        = "conflicted"
	FactTuned             = "tuned"
	FactQueued            = "queued"
	FactPlanned           = "planned"
	FactStarted           = "started"
	FactEpochEnded        = "epoch_ended"
	FactCheckpointWritten = "checkpoint_written"
	FactStopRequested     = "stop_requested"
	FactStopWithdrawn     = "stop_withdrawn"
	FactPreempted         = "preempted"
	FactAttemptLost       = "attempt_lost"
	FactReestimated       = "reestimated"
	FactStraggling        = "straggling"
	FactOutgrew           = "outgrew"
	FactConverged         = "converged"
	FactOverspent         = "overspent"
	FactCancelRequested   = "cancel_requested"
	FactSucceeded         = "succeeded"
	FactFailed            = "failed"
	FactCancelled         = "cancelled"
)

// The other facts.
const (
	FactDecided   = "decided"
	FactRecorded  = "recorded"
	FactStepped   = "stepped"
	FactMeasured  = "measured"
	FactAccounted = "accounted"
	FactSetAside  = "set_aside"
	FactCounted   = "counted"
	FactJudged    = "judged"
	FactDegraded  = "degraded"
	FactRecovered = "recovered"
)

// Kinds is the catalogue of all facts.
func Kinds() []Kind {
	job := func(fact, publisher, key string, once bool, doc string, body func() any) Kind {
		return Kind{"job", fact, 1, StreamJobs, publisher, key, once, doc, body}
	}
	kinds := []Kind{
		job(FactSubmitted, "anyone", "job/<id>/submitted", true, "A submission. Decoded strictly.", func() any { return new(Submitted) }),
		job(FactAdmitted, "admission", "job/<id>/admitted", true, "The job was accepted.", func() any { return new(Admitted) }),
		job(FactRejected, "admission", "job/<id>/rejected", true, "The submission was refused, with every reason.", func() any { return new(Rejected) }),
		job(FactConflicted, "admission", "job/<id>/conflicted/<sequence>", false, "A different submission under a taken id was ignored.", func() any { return new(Conflicted) }),
		job(FactTuned, "planner", "job/<id>/tuned", true, "The batch size of a job of a recurring group was chosen.", func() any { return new(Tuned) }),
		job(FactQueued, "planner", "plan/<generation>/job/<id>/queued", false, "Why the job waits.", func() any { return new(Queued) }),
		job(FactPlanned, "planner", "plan/<generation>/job/<id>/planned", false, "A plan gives the job devices.", func() any { return new(Planned) }),
		job(FactStarted, "executor", "job/<id>/attempt/<n>/started", false, "The processes of an attempt were started.", func() any { return new(Started) }),
		job(FactEpochEnded, "nodeagent", "job/<id>/attempt/<n>/epoch/<epoch>", false, "The training code finished an epoch.", func() any { return new(EpochEnded) }),
		job(FactCheckpointWritten, "nodeagent", "job/<id>/attempt/<n>/checkpoint/<epoch>", false, "The training code saved its state.", func() any { return new(CheckpointWritten) }),
		job(FactStopRequested, "executor", "job/<id>/attempt/<n>/stop/<since>/<cause>", false, "An attempt was asked to leave at its next epoch's end.", func() any { return new(StopRequested) }),
		job(FactStopWithdrawn, "executor", "job/<id>/attempt/<n>/stop_withdrawn/<since>", false, "An attempt that was asked to leave goes on with what it has.", func() any { return new(StopWithdrawn) }),
		job(FactPreempted, "executor", "job/<id>/attempt/<n>/end", false, "An attempt left as asked; the job goes on from its checkpoint.", func() any { return new(Preempted) }),
		job(FactAttemptLost, "executor", "job/<id>/attempt/<n>/end", false, "An attempt was killed or vanished; another follows.", func() any { return new(AttemptLost) }),
		job(FactReestimated, "profiler", "job/<id>/estimate/<epoch>", false, "The predicted run time was corrected.", func() any { return new(Reestimated) }),
		job(FactStraggling, "profiler", "job/<id>/attempt/<n>/straggling", false, "A worker of an attempt holds up the others.", func() any { return new(Straggling) }),
		job(FactOutgrew, "nodeagent", "job/<id>/attempt/<n>/outgrew/<device>/<MiB needed>", false, "An attempt uses more memory than its part of a device.", func() any { return new(Outgrew) }),
		job(FactConverged, "profiler", "job/<id>/converged", true, "The loss has converged by the rule that the user gave.", func() any { return new(Converged) }),
		job(FactOverspent, "planner", "job/<id>/overspent", true, "The job has cost more than its recurring group is ready to pay for one.", func() any { return new(Overspent) }),
		job(FactCancelRequested, "anyone", "job/<id>/cancel", false, "The job shall end.", func() any { return new(CancelRequested) }),
		job(FactSucceeded, "executor", "job/<id>/end", true, "The job ended well.", func() any { return new(Succeeded) }),
		job(FactFailed, "executor", "job/<id>/end", true, "The job cannot go on.", func() any { return new(Failed) }),
		job(FactCancelled, "executor", "job/<id>/end", true, "The job ended as asked.", func() any { return new(Cancelled) }),
		{"plan", FactDecided, 1, StreamPlans, "planner", "plan/<generation>", false, "The whole plan in one message.", func() any { return new(PlanDecided) }},
		{"decision", FactRecorded, 1, StreamDecisions, "planner", "plan/<generation>/input/<part>", false, "What a published plan was decided on, in parts; <id> is the plan's generation.", func() any { return new(DecisionRecorded) }},
		{"sample", FactStepped, 1, StreamSamples, "nodeagent", "job/<id>/attempt/<n>/step/<step>/<rank>", false, "A heartbeat of training code; <id> is the job's.", func() any { return new(Stepped) }},
		{"energy", FactMeasured, 1, StreamSamples, "nodeagent", "node/<id>/<boot>/<sequence>", false, "One interval of a node's meters; <id> is the node's.", func() any { return new(Measured) }},
		{"ledger", FactAccounted, 1, StreamEnergy, "energy", "job/<id>/account", true, "The final energy account of a job.", func() any { return new(Accounted) }},
		{"probe", FactCounted, 1, StreamSamples, "nodeagent", "node/<id>/probes/<session>/<slot>", false, "What a node's agent has sent and received of probes in a slot; <id> is the node's.", func() any { return new(ProbesCounted) }},
		{"probe", FactJudged, 1, StreamSamples, "profiler", "net/judged/<slot>/<part>", false, "What the probes of a window showed of each link; <id> is that of a part of them.", func() any { return new(LinksJudged) }},
		{"net", FactDegraded, 1, StreamNet, "profiler", "net/<id>/degraded/<slot>", false, "A link loses or delays packets; <id> is the link's.", func() any { return new(LinkDegraded) }},
		{"net", FactRecovered, 1, StreamNet, "profiler", "net/<id>/recovered/<slot>", false, "A link that lost or delayed packets does so no more; <id> is the link's.", func() any { return new(LinkRecovered) }},
		{"poison", FactSetAside, 1, StreamPoison, "any service", "poison/<stream>/<sequence>/<consumer>", false, "A message that could not be handled; <id> is the consumer's name.", func() any { return new(Poisoned) }},
	}
	return append(kinds, tuneKinds()...)
}

// Find gives the kind of a subject.
func Find(s Subject) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Entity == s.Entity && k.Fact == s.Fact && k.Version == s.Version {
			return k, true
		}
	}
	return Kind{}, false
}
