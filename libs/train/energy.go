package train

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
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
	// StopEarly ends the job once it has cost more than two and a half times as much as the cheapest job of its group: it
	// has then failed, and its group has learned from it.
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

// Account is the energy of one job in the ledger.
type Account struct {
	Job JobID `json:"job"`
	// Energy is the energy attributed to the job; Components splits it by component (cpu, gpu, dram, and other: what
	// the plug shows beyond these).
	Energy     unit.Energy            `json:"energy_uj"`
	Components map[string]unit.Energy `json:"components_uj,omitempty"`
	// Idle is the part of Energy charged for devices that the job kept idle, Estimated the part split by an estimate of
	// work.
	Idle      unit.Energy `json:"idle_uj,omitempty"`
	Estimated unit.Energy `json:"estimated_uj,omitempty"`
	// Waste is the part of Energy whose work was lost, by cause.
	Waste map[WasteCause]unit.Energy `json:"waste_uj,omitempty"`
	// Methods are the methods by which it is known: nvml_counter, nvml_power, rapl, pcm, pdu, redfish, modelled.
	Methods []string `json:"methods"`
	// Metering tells for each component how it was measured, and for how much of the time.
	Metering map[string]Metering `json:"metering,omitempty"`
	// Seconds is the metered time in which the job ran; the nodes of a gang count once. GapSeconds is unmetered time
	// meanwhile, on each node. Epochs is the number of epochs done, Samples the number of samples of all epochs
	// trained.
	Seconds    float64 `json:"seconds"`
	GapSeconds float64 `json:"gap_seconds,omitempty"`
	Epochs     int     `json:"epochs"`
	Samples    int64   `json:"samples,omitempty"`
	// MeanPower is Energy over Seconds; PeakPower is the highest power of an interval, of all nodes together.
	MeanPower unit.Power `json:"mean_uw"`
	PeakPower unit.Power `json:"peak_uw"`
	// In a node's book Seconds and the powers are the node's own. JointSeconds is the part of Seconds that another node
	// of the gang had already reported, and JointPeakPower the highest power of both together in that time.
	JointSeconds   float64    `json:"joint_seconds,omitempty"`
	JointPeakPower unit.Power `json:"joint_peak_uw,omitempty"`
	// ToTarget is the first epoch that reached the submission's target, with the energy used by then.
	ToTarget *EpochEnergy `json:"to_target,omitempty"`
	// Cost is the price of the energy in Currency, and CO2eGrams its carbon, both with the building's overhead. They are
	// set with Final, and only if the operator's tariff knows them for all of the energy.
	Cost      *float64 `json:"cost,omitempty"`
	Currency  string   `json:"currency,omitempty"`
	CO2eGrams *float64 `json:"co2e_g,omitempty"`
	// Final is set when the job has ended and nothing more is added.
	Final bool `json:"final,omitempty"`
}

// MethodModelled is arithmetic in place of a meter.
const MethodModelled = "modelled"

// Modelled reports whether no meter is among methods.
func Modelled(methods []string) bool {
	return !slices.ContainsFunc(methods, func(m string) bool { return m != MethodModelled })
}

// Active returns the energy the job used, without the charge for idle devices.
func (a Account) Active() unit.Energy { return a.Energy - a.Idle }

// PerEpoch returns the mean energy of an epoch, 0 before the first is done.
func (a Account) PerEpoch() unit.Energy {
	if a.Epochs == 0 {
		return 0
	}
	return a.Energy / unit.Energy(a.Epochs)
}

// JoulesPerSample returns the mean energy of a sample, 0 if the samples are unknown. It is often less than a
// microjoule.
func (a Account) JoulesPerSample() float64 {
	if a.Samples == 0 {
		return 0
	}
	return a.Energy.Joules() / float64(a.Samples)
}

// Metering describes how one component of a job was measured.
type Metering struct {
	// Methods are the methods of measurement.
	Methods []string `json:"methods"`
	// MeasuredSeconds is the part of ExpectedSeconds with a reading, both summed over devices.
	MeasuredSeconds float64 `json:"measured_seconds"`
	ExpectedSeconds float64 `json:"expected_seconds"`
}

// Coverage returns the fraction of the time in which the component was measured, from 0 to 1.
func (m Metering) Coverage() float64 {
	if m.ExpectedSeconds <= 0 {
		return 0
	}
	return min(m.MeasuredSeconds/m.ExpectedSeconds, 1)
}

// WasteCause is the cause of lost work.
type WasteCause string

// The causes. If a job fails, all its energy is wasted; else the energy of an attempt after its last epoch, and of
// epochs trained again.
const (
	WasteFailed    WasteCause = "failed"
	WastePreempted WasteCause = "preempted"
)

// EnergyProgress is the energy of a job over its epochs.
type EnergyProgress struct {
	Job JobID `json:"job"`
	// Attempt is the newest attempt, EpochsDone its newest epoch, and MostEpochs the most epochs any attempt had done.
	Attempt    int `json:"attempt"`
	EpochsDone int `json:"epochs_done"`
	MostEpochs int `json:"most_epochs"`
	// Marked is the energy used when that epoch ended, or when the attempt began.
	Marked unit.Energy `json:"marked_uj"`
	// Samples counts the samples of all epochs trained.
	Samples int64 `json:"samples,omitempty"`
	// Epochs are in the order in which they ended. A long run keeps only some, spread over all of it, and always the
	// newest.
	Epochs []EpochEnergy `json:"epochs,omitempty"`
	// Target is the first epoch that reached the submission's target.
	Target *EpochEnergy `json:"target,omitempty"`
	// Losses are energy used in vain.
	Losses []Loss `json:"losses,omitempty"`
	// Earlier is the account that was closed before the job was resumed.
	Earlier *Account `json:"earlier,omitempty"`
}

// EpochEnergy is the total energy a job had used when an epoch ended.
type EpochEnergy struct {
	Attempt    int `json:"attempt"`
	EpochsDone int `json:"epochs_done"`
	// At is the time when the epoch ended, Energy the energy used by then.
	At     time.Time   `json:"at"`
	Energy unit.Energy `json:"energy_uj"`
	// Loss and Metrics are what the training code reported for the epoch.
	Loss    *float64           `json:"loss,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Loss is energy whose work was lost when an attempt ended.
type Loss struct {
	Attempt int         `json:"attempt"`
	Energy  unit.Energy `json:"energy_uj"`
}

// mostEpochsKept bounds the epochs kept of a long run.
const mostEpochsKept = 256

// Begin records that a newer attempt runs, with the energy used before it. The energy the attempt before used after its
// last epoch is lost.
func (c *EnergyProgress) Begin(attempt int, used unit.Energy) {
	if attempt <= c.Attempt {
		return
	}
	if c.Attempt > 0 && used > c.Marked {
		c.Losses = append(c.Losses, Loss{c.Attempt, used - c.Marked})
	}
	c.Attempt, c.EpochsDone, c.Marked = attempt, 0, used
}

// Mark records the end of an epoch; ok is false if it was recorded before. Repeating an epoch of an earlier attempt
// makes that attempt's work a loss.
func (c *EnergyProgress) Mark(e EpochEnergy, samples int64) (ok bool) {
	if e.Attempt < c.Attempt || e.Attempt == c.Attempt && e.EpochsDone <= c.EpochsDone {
		return false
	}
	e.Energy = max(e.Energy, c.Marked)
	if e.EpochsDone <= c.MostEpochs && e.Energy > c.Marked {
		c.Losses = append(c.Losses, Loss{e.Attempt - 1, e.Energy - c.Marked})
	}
	c.Attempt, c.EpochsDone, c.Marked = e.Attempt, e.EpochsDone, e.Energy
	c.MostEpochs = max(c.MostEpochs, e.EpochsDone)
	c.Samples += samples
	c.Epochs = append(c.Epochs, e)
	if len(c.Epochs) > mostEpochsKept {
		kept := c.Epochs[:0:0]
		for i := 1; i < len(c.Epochs); i += 2 {
			kept = append(kept, c.Epochs[i])
		}
		if last := c.Epochs[len(c.Epochs)-1]; kept[len(kept)-1].EpochsDone != last.EpochsDone {
			kept = append(kept, last)
		}
		c.Epochs = kept
	}
	return true
}

// Aim sets the target epoch to the newest epoch if that is the first to reach the target.
func (c *EnergyProgress) Aim(target *TargetSpec) {
	if n := len(c.Epochs); target != nil && c.Target == nil && n > 0 && target.met(c.Epochs[n-1]) {
		first := c.Epochs[n-1]
		c.Target = &first
	}
}

// Waste sums the losses by the cause for which each attempt ended.
func (c *EnergyProgress) Waste(cause func(attempt int) WasteCause) map[WasteCause]unit.Energy {
	var waste map[WasteCause]unit.Energy
	for _, l := range c.Losses {
		if waste == nil {
			waste = map[WasteCause]unit.Energy{}
		}
		waste[cause(l.Attempt)] += l.Energy
	}
	return waste
}

// Nonfinite and the name of a metric make the metric that is reported in its place if it is no number.
const Nonfinite = "nonfinite_"

// Note enters the newest value of a metric, or the mark that it is no number.
func Note(metrics map[string]float64, name string, value float64) {
	delete(metrics, name)
	delete(metrics, Nonfinite+name)
	if math.IsNaN(value) || math.IsInf(value, 0) {
		name, value = Nonfinite+name, 1
	}
	metrics[name] = value
}

// LowerIsBetter reports whether a metric of this name is usually to be small.
func LowerIsBetter(metric string) bool {
	return strings.HasSuffix(metric, "loss") || strings.HasSuffix(metric, "error")
}

// Best returns the epoch with the best value: the highest, or the lowest. ok is false if no epoch has a value.
func (c *EnergyProgress) Best(value func(EpochEnergy) (float64, bool), lowest bool) (best EpochEnergy, ok bool) {
	sign, top := 1.0, math.Inf(-1)
	if lowest {
		sign = -1
	}
	for _, e := range c.Epochs {
		if v, known := value(e); known && sign*v > top {
			top, best, ok = sign*v, e, true
		}
	}
	return best, ok
}

// MetricNames returns the names of the metrics of all epochs, in order.
func (c *EnergyProgress) MetricNames() []string {
	var names []string
	for _, e := range c.Epochs {
		for name := range e.Metrics {
			if i, found := slices.BinarySearch(names, name); !found {
				names = slices.Insert(names, i, name)
			}
		}
	}
	return names
}
