package train

import "time"

// EnergySpec is what a user says of a job's energy.
type EnergySpec struct {
	// Eta is what energy counts against time, from 0 (time alone) to 1 (energy alone); the planner's --energy-weight unless it is given.
	Eta *float64 `json:"eta,omitempty"`
	// Group names a training that comes again and again, among those of the tenant. The planner then chooses the batch size per device out of BatchSizes,
	// by what earlier jobs of the group cost; batch_size is the one to begin with, and one of them.
	Group      string `json:"group,omitempty"`
	BatchSizes []int  `json:"batch_sizes,omitempty"`
	// StopEarly ends the job when it has cost more than twice as much as the cheapest one of its group: it has then failed, and its group has learned.
	StopEarly bool `json:"stop_early,omitempty"`
	// Target is the quality that the training is for: the ledger then tells the energy to it, and a recurring job that ends without it has missed its goal.
	Target *TargetSpec `json:"target,omitempty"`
	// StartBy is the latest moment, as RFC 3339, to which the start may be put off for energy that is cleaner or cheaper.
	StartBy *time.Time `json:"start_by,omitempty"`
}

// Eta is what energy counts for the job, by default as much as in the cluster.
func (s Spec) Eta(cluster float64) float64 {
	if s.Energy == nil || s.Energy.Eta == nil {
		return cluster
	}
	return *s.Energy.Eta
}

// Recurs says whether the job is one of a group that comes again and again.
func (s Spec) Recurs() bool { return s.Energy != nil && s.Energy.Group != "" }

// TargetSpec is a value that training code reports at an epoch's end, and how good it must be: give AtLeast or AtMost.
type TargetSpec struct {
	// Metric is its name, or loss.
	Metric string `json:"metric"`
	// AtLeast is the bound of a value that grows as the training gets better, AtMost of one that falls.
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`
}

// MetricLoss is the name of the loss among the metrics of a target.
const MetricLoss = "loss"

// Of gives the value of an epoch, where it was told.
func (t TargetSpec) Of(e EpochEnergy) (value float64, told bool) {
	value, told = e.Metrics[t.Metric]
	if !told && t.Metric == MetricLoss && e.Loss != nil {
		return *e.Loss, true
	}
	return value, told
}

// met says whether an epoch is good enough.
func (t TargetSpec) met(e EpochEnergy) bool {
	value, told := t.Of(e)
	return told && (t.AtLeast == nil || value >= *t.AtLeast) && (t.AtMost == nil || value <= *t.AtMost)
}

// Target is the quality that the training is for; nil where the user names none.
func (s Spec) Target() *TargetSpec {
	if s.Energy == nil {
		return nil
	}
	return s.Energy.Target
}

// PowerLimit is what each device of an attempt shall draw at most. Without one, and with 0, a device has its own limit.
type PowerLimit struct {
	Job     JobID     `json:"job"`
	Attempt int       `json:"attempt"`
	Watts   float64   `json:"watts"`
	Since   time.Time `json:"since"`
}

// EnergyRates are what energy costs and stands for now and later, as far as that is foretold: each rate holds until the next one, the last one until Until.
type EnergyRates struct {
	Rates []EnergyRate `json:"rates,omitempty"`
	Until time.Time    `json:"until"`
}

// EnergyRate is what a kilowatt-hour costs and stands for from a moment on; 0 where nobody says.
type EnergyRate struct {
	From        time.Time `json:"from"`
	GramsPerKWh float64   `json:"grams_per_kwh"`
	PricePerKWh float64   `json:"price_per_kwh"`
}
