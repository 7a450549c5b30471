package train

import (
	"slices"
	"time"
)

// EnergySpec is the part of a submission about energy.
type EnergySpec struct {
	// Eta is the weight of energy against time, from 0 (time alone) to 1 (energy alone). Default: the planner's
	// planner.energy_weight.
	Eta *float64 `json:"eta,omitempty"`
	// Group names a recurring training within the tenant. The planner then chooses the batch size per device out of
	// BatchSizes by the cost of earlier jobs of the group; batch_size is the first to try and must be one of them.
	Group      string `json:"group,omitempty"`
	BatchSizes []int  `json:"batch_sizes,omitempty"`
	// StopEarly ends the job once it has cost more than twice as much as the cheapest job of its group: it has then
	// failed, and its group has learned from it.
	StopEarly bool `json:"stop_early,omitempty"`
	// Target is the quality the training aims for. The ledger then reports the energy needed to reach it, and a
	// recurring job that ends without it has missed its goal.
	Target *TargetSpec `json:"target,omitempty"`
	// StartBy is the latest time, as RFC 3339, to which the start may be deferred for cleaner or cheaper energy.
	StartBy *time.Time `json:"start_by,omitempty"`
}

// Eta returns the weight of energy for the job; cluster is the default.
func (s Spec) Eta(cluster float64) float64 {
	if s.Energy == nil || s.Energy.Eta == nil {
		return cluster
	}
	return *s.Energy.Eta
}

// Recurs reports whether the job belongs to a group of recurring jobs.
func (s Spec) Recurs() bool { return s.Energy != nil && s.Energy.Group != "" }

// TargetSpec names a value that training code reports at an epoch's end, and its bound: give AtLeast or AtMost.
type TargetSpec struct {
	// Metric is the name of the value, or loss.
	Metric string `json:"metric"`
	// AtLeast bounds a value that grows as the training improves, AtMost a value that falls.
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`
}

// MetricLoss is the name of the loss among the metrics of a target.
const MetricLoss = "loss"

// Of returns the value of an epoch; known is false if the epoch has none.
func (t TargetSpec) Of(e EpochEnergy) (value float64, known bool) {
	value, known = e.Metrics[t.Metric]
	if !known && t.Metric == MetricLoss && e.Loss != nil {
		return *e.Loss, true
	}
	return value, known
}

// met reports whether an epoch reaches the target.
func (t TargetSpec) met(e EpochEnergy) bool {
	value, known := t.Of(e)
	return known && (t.AtLeast == nil || value >= *t.AtLeast) && (t.AtMost == nil || value <= *t.AtMost)
}

// Target returns the quality the training aims for, or nil.
func (s Spec) Target() *TargetSpec {
	if s.Energy == nil {
		return nil
	}
	return s.Energy.Target
}

// PowerLimit is the highest power of each device of an attempt. Without it, and with 0, a device has its own limit.
type PowerLimit struct {
	Job     JobID     `json:"job"`
	Attempt int       `json:"attempt"`
	Watts   float64   `json:"watts"`
	Since   time.Time `json:"since"`
}

// EnergyRates are the current and forecast cost and carbon intensity of energy: each rate holds until the next one, the
// last one until Until.
type EnergyRates struct {
	Rates []EnergyRate `json:"rates,omitempty"`
	Until time.Time    `json:"until"`
}

// EnergyRate is the cost and carbon intensity of a kilowatt-hour from a time on; 0 if unknown.
type EnergyRate struct {
	From        time.Time `json:"from"`
	GramsPerKWh float64   `json:"grams_per_kwh"`
	PricePerKWh float64   `json:"price_per_kwh"`
}

// At returns the rate that holds at a time; false if none is known for it.
func (r EnergyRates) At(at time.Time) (EnergyRate, bool) {
	for _, rate := range slices.Backward(r.Rates) {
		if !rate.From.After(at) {
			return rate, at.Before(r.Until)
		}
	}
	return EnergyRate{}, false
}
