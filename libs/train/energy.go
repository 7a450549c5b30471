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
