package train

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
