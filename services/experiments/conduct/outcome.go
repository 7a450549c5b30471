package conduct

// Outcome sums up an experiment that has ended. ResponseSeconds is the time from the submission to the end. It is made
// of QueueSeconds, in which a trial waited and none trained, TrainingSeconds of the best trial, and TuningSeconds.
type Outcome struct {
	ResponseSeconds, QueueSeconds, TuningSeconds, TrainingSeconds float64
	EnergyJoules                                                  float64
	// Modelled says that a part of the energy was modelled and not measured.
	Modelled bool
	// Objective is the best objective, with the user's sign; nil if no trial has a result.
	Objective *float64
	Epochs    int
}

// Outcome returns the outcome of an experiment.
func (r *Record) Outcome() Outcome {
	o := Outcome{ResponseSeconds: r.EndedAt.Sub(r.SubmittedAt).Seconds(), QueueSeconds: r.QueueSeconds()}
	for _, row := range r.Rows() {
		o.EnergyJoules += row.EnergyJoules
		o.Modelled = o.Modelled || row.Modelled
		o.Epochs += row.Epochs
		if row.Best {
			o.TrainingSeconds = row.TrainSeconds
		}
	}
	if _, score, ok := r.Best(); ok {
		o.Objective = new(r.Own(score))
	}
	o.TuningSeconds = max(o.ResponseSeconds-o.QueueSeconds-o.TrainingSeconds, 0)
	return o
}
