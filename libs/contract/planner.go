package contract

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Group holds what the jobs of a recurring group cost, and which of them are under way.
type Group struct {
	Attempts []GroupAttempt `json:"attempts,omitempty"`
	// Running holds the jobs under way and how each runs.
	Running map[train.JobID]GroupChoice `json:"running,omitempty"`
	// LimitsWatts are the power limits found best, by batch size. Unlimited is an epoch at the highest limit tried
	// then.
	LimitsWatts map[int]float64     `json:"limits_watts,omitempty"`
	Unlimited   map[int]PowerWindow `json:"unlimited,omitempty"`
	// Taken is what all jobs used, by batch size. It includes jobs whose attempts are no longer kept.
	Taken map[int]GroupTotals `json:"taken,omitempty"`
	// MaxPowerWatts is the highest power of the first job: costs compare only at one price of a second.
	MaxPowerWatts float64 `json:"max_power_watts,omitempty"`
}

// Recurrences returns the number of jobs that have reached their target.
func (g *Group) Recurrences() int {
	n := 0
	for _, a := range g.Attempts {
		if a.Reached {
			n++
		}
	}
	return n
}

// UnderWay returns the jobs under way in the order in which they began.
func (g *Group) UnderWay() []train.JobID {
	return slices.SortedFunc(maps.Keys(g.Running), func(a, b train.JobID) int {
		return cmp.Or(cmp.Compare(g.Running[a].Number, g.Running[b].Number), cmp.Compare(a, b))
	})
}

// Usual is what a job of the group uses on average with a batch size and without a power limit. A job that tried limits
// or ran at one measured only its epochs: each epoch then counts as the one measured at the highest limit. known is
// false if no job with the batch size has reached its target.
func (g *Group) Usual(batchSize int) (joules, seconds float64, known bool) {
	t := g.Taken[batchSize]
	if t.Jobs == 0 {
		return 0, 0, false
	}
	jobs := float64(t.Jobs)
	if w, limited := g.Unlimited[batchSize]; limited && t.Epochs > 0 {
		epochs := float64(t.Epochs) / jobs
		return epochs * w.EnergyJoules, epochs * w.Seconds, true
	}
	return t.EnergyJoules / jobs, t.Seconds / jobs, true
}

// GroupAttempt is one run of a recurring job that has ended.
type GroupAttempt struct {
	BatchSize    int     `json:"batch_size"`
	LimitWatts   float64 `json:"limit_watts"`
	EnergyJoules float64 `json:"energy_joules"`
	Seconds      float64 `json:"seconds"`
	// Epochs is the number of epochs it trained, 0 if unknown.
	Epochs int `json:"epochs,omitempty"`
	// Reached says whether the job reached its target. It may have given up, or have been stopped because it cost too
	// much.
	Reached bool `json:"reached"`
}

// GroupChoice is how the next attempt of a recurring job is to run.
type GroupChoice struct {
	BatchSize int `json:"batch_size"`
	// LimitWatts is the power limit. 0 means the limit found best for this batch size, profiled when the size is first
	// used.
	LimitWatts float64 `json:"limit_watts,omitempty"`
	// MaxCost is the cost that the attempt must not exceed: it stops at the end of an epoch before. In joules; 0 means
	// no bound.
	MaxCost float64 `json:"max_cost_joules,omitempty"`
	// Number orders the jobs under way by when they began.
	Number int `json:"number,omitempty"`
}

// GroupTotals adds up what the jobs of a group that reached their target used with one batch size.
type GroupTotals struct {
	Jobs         int     `json:"jobs"`
	Epochs       int     `json:"epochs"`
	EnergyJoules float64 `json:"energy_joules"`
	Seconds      float64 `json:"seconds"`
}

// PowerWindow is what a device measured while it did the same work at one power limit.
type PowerWindow struct {
	LimitWatts   float64 `json:"limit_watts"`
	EnergyJoules float64 `json:"energy_joules"`
	Seconds      float64 `json:"seconds"`
}

// PowerProfile is the power limit of a running job and the measurements it was chosen by: one epoch at each limit, from
// the highest down.
type PowerProfile struct {
	train.PowerLimit
	// Devices is the number of devices of the attempt. Windows measured on another number do not compare.
	Devices int           `json:"devices"`
	Windows []PowerWindow `json:"windows,omitempty"`
	// Settled is set when the limit was chosen, or the search for it given up.
	Settled bool `json:"settled,omitempty"`
}

// TuningRound is the state of tuning the micro-batches on one shared device: what its node agent shall do, and the
// measurements that this follows from. A planner that finds the record continues the round.
type TuningRound struct {
	train.Tuning
	// Sharers are the jobs on the device, in the order of Tenants.
	Sharers []Sharer `json:"sharers"`
	// Start are the batches that they had when the round began, as indices of Batches.
	Start []int `json:"start"`
	// Measured are the combinations tried so far.
	Measured []TuningMeasurement `json:"measured,omitempty"`
	// Confirming is set while the best combination is measured once more: the best of several measurements is partly
	// luck.
	Confirming bool `json:"confirming,omitempty"`
	// Unanswered counts the latest rounds of these jobs in a row that ended because one of them did not answer.
	Unanswered int `json:"unanswered,omitempty"`
	// Most bounds the micro-batch of a job that answered a larger one with a smaller, or whose attempt ended while a
	// batch larger than the submitted one was tried.
	Most map[train.JobID]int `json:"most,omitempty"`
}

// Sharer is a job that shares a device with others.
type Sharer struct {
	Job     train.JobID `json:"job"`
	Attempt int         `json:"attempt"`
	// BatchSize is the number of samples of an optimizer step, as submitted.
	BatchSize int `json:"batch_size"`
	// Batches are the micro-batches it can run with, ascending. A single one cannot change. Those beyond BatchSize make
	// the optimizer step larger.
	Batches []int `json:"batches"`
	// Gains are what an optimizer step with each of them is worth, in steps of BatchSize.
	Gains []float64 `json:"gains"`
	// AloneSeconds is the measured time of an optimizer step of BatchSize alone on such a device; 0 if it never ran
	// alone.
	AloneSeconds float64 `json:"alone_seconds,omitempty"`
	// Weight is how much its progress counts.
	Weight float64 `json:"weight"`
	// Fixed is set if the job does not report its micro-batch. Silent is set if it reports no steps either; the round
	// does not wait for it.
	Fixed  bool `json:"fixed,omitempty"`
	Silent bool `json:"silent,omitempty"`
}

// TuningMeasurement is how long an optimizer step of each sharer took with one combination; 0 for a silent one.
type TuningMeasurement struct {
	Choice      []int     `json:"choice"`
	StepSeconds []float64 `json:"step_seconds"`
}

// Usage is the device time that tenants had used at a time, in device-seconds. Those used a half-life
// (planner.usage_half_life) ago count half.
type Usage struct {
	// At is the time up to which all is counted.
	At time.Time `json:"at"`
	// DeviceSeconds is what each tenant has used, by his name.
	DeviceSeconds map[string]float64 `json:"device_seconds"`
}
