package event

import (
	"slices"
	"sync"
)

// Kind describes one fact of the contract.
type Kind struct {
	Entity  string
	Fact    string
	Version int
	// Stream stores the fact.
	Stream string
	// Publisher is the only service that publishes it, or Anyone or Operators.
	Publisher string
	// Key is the pattern of its idempotency key (Nats-Msg-Id).
	Key string
	// Once is set for facts that a job has at most once: they are published with expected last sequence 0.
	Once bool
	Doc  string
	// New returns a pointer to an empty body.
	New func() any
}

// Subject returns the kind's subject with a placeholder for the id.
func (k Kind) Subject() string {
	return Subject{Entity: k.Entity, ID: "<id>", Fact: k.Fact, Version: k.Version}.String()
}

// The publishers of facts that belong to no single service: all people, operators alone, and each service about itself.
const (
	Anyone     = "anyone"
	Operators  = "operators"
	AnyService = "any service"
)

// Asked reports whether people publish facts of the kind, rather than a service.
func (k Kind) Asked() bool { return k.Publisher == Anyone || k.Publisher == Operators }

// The facts of a job.
const (
	FactSubmitted         = "submitted"
	FactAdmitted          = "admitted"
	FactRejected          = "rejected"
	FactConflicted        = "conflicted"
	FactDependencyEnded   = "dependency_ended"
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
	FactWanted            = "wanted"
	FactEditRequested     = "edit_requested"
	FactEditDecided       = "edit_decided"
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

// body returns a pointer to an empty body.
func body[T any]() any { return new(T) }

// Kinds returns the catalogue of all facts.
func Kinds() []Kind {
	const once, repeated = true, false
	job := func(fact, publisher, key string, atMostOnce bool, doc string, newBody func() any) Kind {
		return Kind{"job", fact, 1, StreamJobs, publisher, key, atMostOnce, doc, newBody}
	}
	kinds := []Kind{
		job(FactSubmitted, Anyone, "job/<id>/submitted", once,
			"A submission. Decoded strictly.", body[Submitted]),
		job(FactAdmitted, "admission", "job/<id>/admitted", once,
			"The job was accepted.", body[Admitted]),
		job(FactRejected, "admission", "job/<id>/rejected", once,
			"The submission was refused, with every reason.", body[Rejected]),
		job(FactConflicted, "admission", "job/<id>/conflicted/<sequence>", repeated,
			"A different submission under a taken id was ignored.", body[Conflicted]),
		job(FactDependencyEnded, "admission", "job/<id>/dependency/<other>", repeated,
			"A job for which this one waits has ended.", body[DependencyEnded]),
		job(FactTuned, "planner", "job/<id>/tuned", once,
			"The batch size of a job of a recurring group was chosen.", body[Tuned]),
		job(FactQueued, "planner", "plan/<generation>/job/<id>/queued", repeated,
			"The reasons why the job waits, published again only for other ones. If many jobs come at once, these are admitted first. Its place now is in the newest plan.", body[Queued]),
		job(FactPlanned, "planner", "plan/<generation>/job/<id>/planned", repeated,
			"A plan gives the job devices.", body[Planned]),
		job(FactStarted, "executor", "job/<id>/attempt/<n>/started", repeated,
			"The processes of an attempt were started.", body[Started]),
		job(FactEpochEnded, "nodeagent", "job/<id>/attempt/<n>/epoch/<epoch>", repeated,
			"The training code finished an epoch.", body[EpochEnded]),
		job(FactCheckpointWritten, "nodeagent", "job/<id>/attempt/<n>/checkpoint/<epoch>", repeated,
			"The training code saved its state.", body[CheckpointWritten]),
		job(FactStopRequested, "executor", "job/<id>/attempt/<n>/stop/<since>/<cause>", repeated,
			"An attempt was asked to stop at its next epoch's end.", body[StopRequested]),
		job(FactStopWithdrawn, "executor", "job/<id>/attempt/<n>/stop_withdrawn/<since>", repeated,
			"An attempt that was asked to stop goes on with what it has.", body[StopWithdrawn]),
		job(FactPreempted, "executor", "job/<id>/attempt/<n>/end", repeated,
			"An attempt stopped as asked; the job goes on from its checkpoint.", body[Preempted]),
		job(FactAttemptLost, "executor", "job/<id>/attempt/<n>/end", repeated,
			"An attempt failed, was killed or vanished; another follows.", body[AttemptLost]),
		job(FactReestimated, "profiler", "job/<id>/training/<n>/estimate/<epoch>", repeated,
			"The predicted run time was corrected. The job began again from scratch with its attempt n, or never if n is 0.", body[Reestimated]),
		job(FactStraggling, "profiler", "job/<id>/attempt/<n>/straggling", repeated,
			"A worker of an attempt holds up the others.", body[Straggling]),
		job(FactOutgrew, "nodeagent", "job/<id>/attempt/<n>/outgrew/<device>/<MiB needed>", repeated,
			"An attempt uses more memory than its part of a device.", body[Outgrew]),
		job(FactConverged, "profiler", "job/<id>/training/<n>/converged", repeated,
			"The loss has converged by the user's rule. The job began again from scratch with its attempt n, or never if n is 0.", body[Converged]),
		job(FactOverspent, "planner", "job/<id>/overspent", once,
			"The job has cost more than its recurring group is ready to pay for one job.", body[Overspent]),
		job(FactCancelRequested, Anyone, "job/<id>/cancel/<any>", repeated,
			"A request to end the job.", body[CancelRequested]),
		job(FactWanted, Anyone, "job/<id>/wanted/<any>", repeated,
			"A request to hold, pause, resume or requeue the job.", body[Wanted]),
		job(FactEditRequested, Anyone, "job/<id>/edit/<any>", repeated,
			"A request to change the spec of the job. Decoded strictly.", body[EditRequested]),
		job(FactEditDecided, "admission", "job/<id>/edited/<sequence>", repeated,
			"The spec of the job has changed, or stays, with every reason.", body[EditDecided]),
		job(FactSucceeded, "executor", "job/<id>/end", once,
			"The job ended as a success.", body[Succeeded]),
		job(FactFailed, "executor", "job/<id>/end", once,
			"The job cannot go on.", body[Failed]),
		job(FactCancelled, "executor", "job/<id>/end", once,
			"The job ended as asked.", body[Cancelled]),
		{
			"plan", FactDecided, 1, StreamPlans, "planner", "plan/<generation>", repeated,
			"The whole plan in one message.", body[PlanDecided],
		},
		{
			"decision", FactRecorded, 1, StreamDecisions, "planner", "plan/<generation>/input/<part>", repeated,
			"The input of a published plan, in parts; <id> is the plan's generation.", body[DecisionRecorded],
		},
		{
			"sample", FactStepped, 1, StreamSamples, "nodeagent", "job/<id>/attempt/<n>/step/<step>/<rank>", repeated,
			"A heartbeat of training code; <id> is the job's.", body[Stepped],
		},
		{
			"energy", FactMeasured, 1, StreamSamples, "nodeagent", "node/<id>/<boot>/<sequence>", repeated,
			"One interval of a node's meters; <id> is the node's.", body[Measured],
		},
		{
			"ledger", FactAccounted, 1, StreamEnergy, "energy", "job/<id>/account", once,
			"The final energy account of a job.", body[Accounted],
		},
		{
			"probe", FactCounted, 1, StreamSamples, "nodeagent", "node/<id>/probes/<session>/<slot>", repeated,
			"The probes that a node's agent sent and received in a slot; <id> is the node's.", body[ProbesCounted],
		},
		{
			"probe", FactJudged, 1, StreamSamples, "profiler", "net/judged/<slot>/<part>", repeated,
			"The results of one window of probes for each link; <id> is the number of a part of them.", body[LinksJudged],
		},
		{
			"net", FactDegraded, 1, StreamNet, "profiler", "net/<id>/degraded/<slot>", repeated,
			"A link loses or delays packets; <id> is the link's.", body[LinkDegraded],
		},
		{
			"net", FactRecovered, 1, StreamNet, "profiler", "net/<id>/recovered/<slot>", repeated,
			"A link no longer loses or delays packets; <id> is the link's.", body[LinkRecovered],
		},
		{
			"poison", FactSetAside, 1, StreamPoison, AnyService, "poison/<stream>/<sequence>/<consumer>", repeated,
			"A message that could not be handled; <id> is the consumer's name.", body[Poisoned],
		},
	}
	return slices.Concat(kinds, nodeKinds(), peopleKinds(), tuneKinds())
}

// byName has each kind under its subject without an id. One is looked up for each message.
var byName = sync.OnceValue(func() map[Subject]Kind { //nolint:gochecknoglobals // a constant, made once
	all := map[Subject]Kind{}
	for _, k := range Kinds() {
		all[Subject{Entity: k.Entity, Fact: k.Fact, Version: k.Version}] = k
	}
	return all
})

// Find returns the kind of a subject.
func Find(s Subject) (Kind, bool) {
	s.ID = ""
	k, known := byName()[s]
	return k, known
}
