package train

import (
	"fmt"
	"time"
)

// AttemptReport is what the node agent has heard of an attempt from the training code itself.
type AttemptReport struct {
	Job     JobID `json:"job"`
	Attempt int   `json:"attempt"`
	// EpochsDone is the highest number of finished epochs that the code reported.
	EpochsDone int `json:"epochs_done"`
	// Spoke is set by the first call: only such a job can be asked to stop at an epoch's end.
	Spoke bool `json:"spoke"`
	// StopAnswered is set before the code receives the request to stop: only then is an exit with status 0 before the
	// last epoch a preemption.
	StopAnswered bool `json:"stop_answered,omitempty"`
	// Batch is the batch of the last finished epoch, as the code reported it.
	Batch Batch `json:"batch,omitzero"`
	// Steps is how far the code is in its epoch. It is written some seconds after the code reported it, at most.
	Steps Steps `json:"steps,omitzero"`
	// AnyStep is set by code that asks after each step whether to stop, and then saves its state: it need not finish its
	// epoch first.
	AnyStep bool `json:"any_step,omitempty"`
	// Enlarged is set before the code is asked for optimizer steps larger than submitted.
	Enlarged bool `json:"enlarged,omitempty"`
	// Ended is the outcome that the code itself reported: finished, stopped or failed.
	Ended string `json:"ended,omitempty"`
	// OutputRead reports that the attempt has ended and that all epochs in its output were reported.
	OutputRead bool `json:"output_read,omitempty"`
	// Checkpoint is the newest reported checkpoint: it holds CheckpointEpochs epochs and CheckpointStep steps of the next.
	Checkpoint       string `json:"checkpoint,omitempty"`
	CheckpointEpochs int    `json:"checkpoint_epochs,omitempty"`
	CheckpointStep   int    `json:"checkpoint_step,omitempty"`
	// FoundCheckpoint is set if the supervisor found the checkpoint by the job's pattern: how much work it holds is
	// unknown.
	FoundCheckpoint bool `json:"found_checkpoint,omitempty"`
	// Signal is the signal by which the supervisor can ask the processes to leave: SIGUSR1 or SIGTERM; empty if it cannot.
	Signal string `json:"signal,omitempty"`
}

// HasCheckpoint reports whether the attempt has reported a checkpoint. A public report says after how many epochs, not
// where.
func (r AttemptReport) HasCheckpoint() bool {
	return r.Checkpoint != "" || r.FoundCheckpoint || r.CheckpointEpochs > 0 || r.CheckpointStep > 0
}

// Public returns what everybody may see of a report: not where its checkpoint is.
func (r AttemptReport) Public() AttemptReport {
	r.Checkpoint = ""
	return r
}

// The values of AttemptReport.Signal. Code that catches SIGUSR1 saves its state and leaves. All other code is ended by
// SIGTERM after its next checkpoint.
const (
	SignalSave = "SIGUSR1"
	SignalEnd  = "SIGTERM"
)

// Askable reports whether an attempt can be asked to leave: its code calls the job API, or gets a signal.
func (r AttemptReport) Askable() bool { return r.Spoke || r.Signal != "" }

const (
	// silentSteps is the number of a job's own steps without a heartbeat after which it counts as silent.
	silentSteps = 20
	// silentFloor is the least silence: an evaluation or a checkpoint may take as long.
	silentFloor = time.Minute
	// CodeSilent is the code of the reason.
	CodeSilent = "Silent"
)

// SilentAt returns from when code counts as silent if it reports no further step: after twenty of its own steps, and a
// minute. It returns false for code that reports no steps.
func (s Steps) SilentAt() (time.Time, bool) {
	return s.At.Add(max(time.Duration(silentSteps*s.Seconds*float64(time.Second)), silentFloor)), s.Known() && s.Seconds > 0
}

// Silent returns the reason of a running attempt whose code has gone silent; false if it has not, was asked to stop, or
// has ended.
func Silent(a Attempt, r AttemptReport, now time.Time) (Reason, bool) {
	from, known := r.Steps.SilentAt()
	if !known || now.Before(from) || a.Phase != PhaseRunning || a.Stop != StopNone || r.Ended != "" {
		return Reason{}, false
	}
	return Reason{
		Code: CodeSilent,
		Message: fmt.Sprintf("no step was reported for %s, since %s (step %d); a step usually takes %s", now.Sub(r.Steps.At).Round(time.Second),
			r.Steps.At.UTC().Format(time.RFC3339), r.Steps.Total, time.Duration(r.Steps.Seconds*float64(time.Second)).Round(time.Millisecond)),
		Hint: fmt.Sprintf("switchyard logs %s shows where it is; switchyard cancel %s ends it", a.Job, a.Job),
	}, true
}

// Unreported is what the code of an ended attempt left for the agent of its node, and the agent never took.
type Unreported struct {
	// Reports is how many reports it left. The other fields say the same as those of an AttemptReport.
	Reports    int `json:"reports"`
	EpochsDone int `json:"epochs_done,omitempty"`
	// Ended is the outcome that the code itself reported: finished, stopped or failed.
	Ended string `json:"ended,omitempty"`
	// Checkpoint is the newest checkpoint: it holds CheckpointEpochs epochs and CheckpointStep steps of the next.
	Checkpoint       string `json:"checkpoint,omitempty"`
	CheckpointEpochs int    `json:"checkpoint_epochs,omitempty"`
	// CheckpointStep is the number of steps that the checkpoint holds beyond its epochs.
	CheckpointStep int `json:"checkpoint_step,omitempty"`
}

// Add adds a report.
func (u *Unreported) Add(o Unreported) {
	u.Reports += o.Reports
	u.EpochsDone = max(u.EpochsDone, o.EpochsDone)
	if o.Ended != "" {
		u.Ended = o.Ended
	}
	if o.Checkpoint != "" && (o.CheckpointEpochs > u.CheckpointEpochs || o.CheckpointEpochs == u.CheckpointEpochs && o.CheckpointStep >= u.CheckpointStep) {
		u.Checkpoint, u.CheckpointEpochs, u.CheckpointStep = o.Checkpoint, o.CheckpointEpochs, o.CheckpointStep
	}
}

// In returns the report of an attempt with what did not arrive. It may be called on nil.
func (u *Unreported) In(r AttemptReport) AttemptReport {
	if u == nil {
		return r
	}
	all := Unreported{
		EpochsDone: r.EpochsDone, Ended: r.Ended, Checkpoint: r.Checkpoint, CheckpointEpochs: r.CheckpointEpochs, CheckpointStep: r.CheckpointStep,
	}
	all.Add(*u)
	r.Spoke, r.EpochsDone, r.Ended = true, all.EpochsDone, all.Ended
	r.Checkpoint, r.CheckpointEpochs, r.CheckpointStep = all.Checkpoint, all.CheckpointEpochs, all.CheckpointStep
	return r
}

// MaxStragglers bounds the number of slow workers for which a job is moved in its whole life.
const MaxStragglers = 3

// Straggler is a worker that held up the others of its attempt.
type Straggler struct {
	Attempt int      `json:"attempt"`
	Rank    int      `json:"rank"`
	Node    NodeID   `json:"node"`
	Device  DeviceID `json:"device"`
	// Slowdown is its time for a step, waiting excluded, over the median of the attempt's workers.
	Slowdown float64 `json:"slowdown"`
	// FoundAt is the time when it was found; zero in old records.
	FoundAt time.Time `json:"told_at,omitzero"`
}

// Staging is how far the data of an attempt is on its way to the node.
type Staging struct {
	// URL is where the data comes from, as the job names it.
	URL string `json:"url"`
	// Bytes were fetched of Total, which is 0 while nobody knows it.
	Bytes int64 `json:"bytes"`
	Total int64 `json:"total,omitempty"`
	// Cached reports that the node had a copy already, and that its source has not changed.
	Cached bool `json:"cached,omitempty"`
}

// DataSchemes are the schemes of addresses that a node can fetch.
func DataSchemes() []string { return []string{"file", "hdfs", "http", "https", "s3", "webhdfs"} }

// Whole reports whether all of it is there.
func (s Staging) Whole() bool { return s.Cached || s.Total > 0 && s.Bytes >= s.Total }

// NotStaged is the reason code of an attempt whose data could not be fetched.
const NotStaged = "DataNotStaged"
