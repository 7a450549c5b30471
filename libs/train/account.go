package train

import (
	"math"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// Account is the energy of one job in the ledger.
type Account struct {
	Job JobID `json:"job"`
	// Energy is what was attributed to the job; Components splits it by component (cpu, gpu, dram, and other: what the plug shows beyond them).
	Energy     unit.Energy            `json:"energy_uj"`
	Components map[string]unit.Energy `json:"components_uj,omitempty"`
	// Idle is the part of Energy that the job was charged for since it kept devices that idled, Estimated the part that was shared by an estimate of work.
	Idle      unit.Energy `json:"idle_uj,omitempty"`
	Estimated unit.Energy `json:"estimated_uj,omitempty"`
	// Waste is the part of Energy whose work was lost, by the reason.
	Waste map[WasteCause]unit.Energy `json:"waste_uj,omitempty"`
	// Methods are how it was obtained: nvml_counter, nvml_power, rapl, pcm, pdu, redfish, modelled.
	Methods []string `json:"methods"`
	// Metering says of each component how it was measured, and for how much of the time.
	Metering map[string]Metering `json:"metering,omitempty"`
	// Seconds is the measured time in which the job ran, that of a gang counted once; GapSeconds unmeasured time meanwhile, of each node; Epochs the epochs done so far, Samples the samples
	// of all epochs that were trained.
	Seconds    float64 `json:"seconds"`
	GapSeconds float64 `json:"gap_seconds,omitempty"`
	Epochs     int     `json:"epochs"`
	Samples    int64   `json:"samples,omitempty"`
	// MeanPower is Energy over Seconds; PeakPower the highest of an interval, of all nodes together.
	MeanPower unit.Power `json:"mean_uw"`
	PeakPower unit.Power `json:"peak_uw"`
	// In a node's book Seconds and the powers are the node's own. JointSeconds are those of Seconds of which another node of the gang had told before, and
	// JointPeakPower is the highest of both together then.
	JointSeconds   float64    `json:"joint_seconds,omitempty"`
	JointPeakPower unit.Power `json:"joint_peak_uw,omitempty"`
	// ToTarget is the first epoch whose value was as good as the submission wants it, with what the job had used by then.
	ToTarget *EpochEnergy `json:"to_target,omitempty"`
	// Final is set when the job has ended and nothing is added any more.
	Final bool `json:"final,omitempty"`
}

// Active is what the job used, without what it was charged for devices that idled.
func (a Account) Active() unit.Energy { return a.Energy - a.Idle }

// PerEpoch is the energy of an epoch on average, 0 before the first one is done.
func (a Account) PerEpoch() unit.Energy {
	if a.Epochs == 0 {
		return 0
	}
	return a.Energy / unit.Energy(a.Epochs)
}

// JoulesPerSample is the energy of a sample on average, 0 where no samples are known. It is often less than a microjoule would tell.
func (a Account) JoulesPerSample() float64 {
	if a.Samples == 0 {
		return 0
	}
	return a.Energy.Joules() / float64(a.Samples)
}

// Metering is how one component of a job was measured.
type Metering struct {
	// Methods are those by which it was measured.
	Methods []string `json:"methods"`
	// MeasuredSeconds are those of ExpectedSeconds in which there was a reading, both summed over devices.
	MeasuredSeconds float64 `json:"measured_seconds"`
	ExpectedSeconds float64 `json:"expected_seconds"`
}

// Coverage is the part of the time in which the component was measured, from 0 to 1.
func (m Metering) Coverage() float64 {
	if m.ExpectedSeconds <= 0 {
		return 0
	}
	return min(m.MeasuredSeconds/m.ExpectedSeconds, 1)
}

// WasteCause says why work was lost.
type WasteCause string

// The causes. All that a job used is wasted when it fails; else what an attempt used after its last epoch, and epochs that had to be trained again.
const (
	WasteFailed    WasteCause = "failed"
	WastePreempted WasteCause = "preempted"
)

// Course is the energy of a job over its epochs.
type Course struct {
	Job JobID `json:"job"`
	// Attempt is the newest one, EpochsDone its newest epoch, and MostEpochs the most that any attempt had done.
	Attempt    int `json:"attempt"`
	EpochsDone int `json:"epochs_done"`
	MostEpochs int `json:"most_epochs"`
	// Marked is what the job had used when that epoch ended, or when the attempt began.
	Marked unit.Energy `json:"marked_uj"`
	// Samples are those of all epochs that were trained.
	Samples int64 `json:"samples,omitempty"`
	// Epochs are in the order in which they ended. Of a long run only some are kept, spread over all of it, the newest always.
	Epochs []EpochEnergy `json:"epochs,omitempty"`
	// Target is the first epoch that reached the submission's target.
	Target *EpochEnergy `json:"target,omitempty"`
	// Losses are what was used in vain.
	Losses []Loss `json:"losses,omitempty"`
}

// EpochEnergy is what a job had used in all when an epoch ended.
type EpochEnergy struct {
	Attempt    int `json:"attempt"`
	EpochsDone int `json:"epochs_done"`
	// At is when the epoch ended, Energy what the job had used by then.
	At     time.Time   `json:"at"`
	Energy unit.Energy `json:"energy_uj"`
	// Loss and Metrics are what the training code reported of it.
	Loss    *float64           `json:"loss,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Loss is energy whose work was lost when an attempt ended.
type Loss struct {
	Attempt int         `json:"attempt"`
	Energy  unit.Energy `json:"energy_uj"`
}

// mostEpochsKept bounds the course of a long run.
const mostEpochsKept = 256

// Begin notes that a newer attempt runs, before which the job had used so much. What the one before used after its last epoch is lost.
func (c *Course) Begin(attempt int, used unit.Energy) {
	if attempt <= c.Attempt {
		return
	}
	if c.Attempt > 0 && used > c.Marked {
		c.Losses = append(c.Losses, Loss{c.Attempt, used - c.Marked})
	}
	c.Attempt, c.EpochsDone, c.Marked = attempt, 0, used
}

// Mark notes the end of an epoch; ok is false for one that was noted before. An epoch that an earlier attempt had done was lost with that.
func (c *Course) Mark(e EpochEnergy, samples int64) (ok bool) {
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

// Aim notes the newest epoch if it is the first to reach a target.
func (c *Course) Aim(target *TargetSpec) {
	if n := len(c.Epochs); target != nil && c.Target == nil && n > 0 && target.met(c.Epochs[n-1]) {
		first := c.Epochs[n-1]
		c.Target = &first
	}
}

// Waste adds up what was lost, by the reason why attempts ended.
func (c *Course) Waste(cause func(attempt int) WasteCause) map[WasteCause]unit.Energy {
	var waste map[WasteCause]unit.Energy
	for _, l := range c.Losses {
		if waste == nil {
			waste = map[WasteCause]unit.Energy{}
		}
		waste[cause(l.Attempt)] += l.Energy
	}
	return waste
}

// EnergyTo is what the job had used when a value of its epochs was first good enough; ok is false where it never was.
func (c *Course) EnergyTo(value func(EpochEnergy) (float64, bool), goodEnough func(float64) bool) (used unit.Energy, ok bool) {
	for _, e := range c.Epochs {
		if v, told := value(e); told && goodEnough(v) {
			return e.Energy, true
		}
	}
	return 0, false
}

// Best is the epoch with the best value: the highest, or the lowest. ok is false where none tells it.
func (c *Course) Best(value func(EpochEnergy) (float64, bool), lowest bool) (best EpochEnergy, ok bool) {
	sign, top := 1.0, math.Inf(-1)
	if lowest {
		sign = -1
	}
	for _, e := range c.Epochs {
		if v, told := value(e); told && sign*v > top {
			top, best, ok = sign*v, e, true
		}
	}
	return best, ok
}

// MetricNames are the metrics that epochs told, in order.
func (c *Course) MetricNames() []string {
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
