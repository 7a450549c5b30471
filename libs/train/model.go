package train

import (
	"math"
	"slices"
	"sort"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// This file holds what is learned about a job while it runs. The types are plain data, fitted by libs/curve and sent
// over the wire; their methods only predict. No value is NaN or infinite.

// Span is a prediction with the interval that the evidence allows: Low <= Expected <= High, all in one unit.
type Span struct {
	// Expected is the most likely value.
	Expected float64 `json:"expected"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
}

// Hyperbola is the normalised loss curve 1/(B0*k+B1)+B2 over epochs k, with no negative coefficient (Optimus,
// EuroSys'18, equation 1).
type Hyperbola struct {
	B0 float64 `json:"b0"`
	B1 float64 `json:"b1"`
	B2 float64 `json:"b2"`
}

// At returns the normalised loss after k epochs. A curve without an offset in the denominator has no finite loss at
// zero epochs; the denominator is then held at 1e-9.
func (h Hyperbola) At(k float64) float64 {
	return 1/math.Max(h.B0*k+h.B1, 1e-9) + h.B2
}

// drop returns the fall of the normalised loss between epochs k-1 and k, in the closed form that does not subtract two
// nearly equal numbers. It never rises with k.
func (h Hyperbola) drop(k float64) float64 {
	before := math.Max(h.B0*(k-1)+h.B1, 1e-9)
	after := math.Max(h.B0*k+h.B1, 1e-9)
	return (after - before) / after / before
}

// stopsAt returns the first epoch that ends a run of patience epochs, each with a drop below threshold; at most limit.
func (h Hyperbola) stopsAt(threshold float64, patience, limit int) float64 {
	calm := 1 + sort.Search(limit, func(i int) bool { return h.drop(float64(i+1)) < threshold })
	return float64(min(calm+patience-1, limit))
}

// Convergence predicts the training loss: Loss(k) = Scale*(1/(B0*k+B1)+B2), k in epochs.
type Convergence struct {
	Hyperbola
	// Scale is the largest loss seen, in the job's own unit of loss; the curve itself is relative to it.
	Scale float64 `json:"scale"`
	// Points is the number of epochs in the fit.
	Points int `json:"points"`
	// RMSE is the weighted root mean square residual, as a fraction of Scale.
	RMSE float64 `json:"rmse"`
	// Likely are other curves that explain the points about as well, all about equally probable; they give the interval
	// of a prediction and its middle.
	Likely []Hyperbola `json:"likely,omitempty"`
}

// Loss returns the predicted loss at the end of an epoch, in the job's unit.
func (c Convergence) Loss(epoch float64) float64 { return c.Scale * c.At(epoch) }

// EpochsUntil counts the epochs from the start of training until it has converged: the loss has fallen by less than
// threshold (in the job's unit of loss) in each of patience consecutive epochs. The count never exceeds limit, and
// equals it if the threshold is not positive. The interval spans all likely curves; the expected value is their middle.
func (c Convergence) EpochsUntil(threshold float64, patience, limit int) Span {
	limit, patience = max(limit, 0), max(patience, 1)
	if !(threshold > 0) || !(c.Scale > 0) {
		return Span{Expected: float64(limit), Low: float64(limit), High: float64(limit)}
	}
	relative := threshold / c.Scale
	// While there are few points, the single best curve jumps between the ends of the interval; the middle of all
	// curves does not.
	stops := []float64{c.stopsAt(relative, patience, limit)}
	for _, h := range c.Likely {
		stops = append(stops, h.stopsAt(relative, patience, limit))
	}
	slices.Sort(stops)
	return Span{Expected: stops[len(stops)/2], Low: stops[0], High: stops[len(stops)-1]}
}

// StopRule defines when a job ends: after MaxEpochs, or earlier once the loss has fallen by less than MinDecrease per
// epoch for Patience epochs. A MinDecrease of zero never stops early.
type StopRule struct {
	MaxEpochs   float64 `json:"max_epochs"`
	MinDecrease float64 `json:"min_decrease,omitempty"`
	Patience    int     `json:"patience,omitempty"`
}

// Efficiency is the statistical efficiency of larger batches, from the gradient noise at BaseBatch samples.
type Efficiency struct {
	// Variance of the gradient and squared norm of its mean, both at BaseBatch, in the same arbitrary unit.
	Variance float64 `json:"grad_var"`
	Square   float64 `json:"grad_sqr"`
	// BaseBatch is the global batch, in samples, at which progress is counted.
	BaseBatch int `json:"base_batch"`
	// Batch is the global batch, in samples, with which the noise was measured; zero if unknown.
	Batch int `json:"batch,omitempty"`
}

// Scale is the gradient noise scale in samples, tr(Σ)/|G|² (McCandlish et al., 2018): the batch up to which a larger
// one pays. It returns false if nothing was measured.
func (e Efficiency) Scale() (float64, bool) {
	if !(e.Variance >= 0 && e.Square >= 0 && e.Variance+e.Square > 0) || e.BaseBatch <= 0 {
		return 0, false
	}
	return math.Min(e.Variance*float64(e.BaseBatch)/math.Max(e.Square, math.SmallestNonzeroFloat64), MaxNoiseScale), true
}

// MaxNoiseScale bounds a gradient noise scale, in samples: no batch comes near it.
const MaxNoiseScale = 1e12

// Gain returns the progress of one step at a global batch, in steps at BaseBatch: (var+sqr)/(var*M0/M+sqr) (Pollux,
// OSDI'21). It lies between 1 and batch/BaseBatch; without any measurement it is 1, which promises nothing.
func (e Efficiency) Gain(batch int) float64 {
	if batch <= 0 || e.BaseBatch <= 0 {
		return 1
	}
	shrink := float64(e.BaseBatch) / float64(batch)
	top := math.Max(e.Variance, e.Square)
	if !(top > 0) {
		return 1
	}
	variance, square := e.Variance/top, e.Square/top
	return (variance + square) / (variance*shrink + square)
}

// Ran is what was measured on one configuration, whose LocalBatch is the samples of one pass.
type Ran struct {
	Config
	// Device is the model of the devices.
	Device string `json:"model,omitempty"`
	// StepSeconds is one optimizer step of one pass, SyncSeconds the part of it in which gradients are exchanged: a
	// further pass costs the difference.
	StepSeconds float64 `json:"step_seconds"`
	SyncSeconds float64 `json:"sync_seconds"`
}

// Memory is the device memory of one worker: FixedBytes + SampleBytes*batch.
type Memory struct {
	FixedBytes  float64 `json:"fixed_bytes"`
	SampleBytes float64 `json:"sample_bytes"`
	// Points is the number of different batch sizes measured. With one, the part that grows is an assumption.
	Points int `json:"points"`
	// ErrorBytes is the largest residual of the fit.
	ErrorBytes float64 `json:"error_bytes"`
}

// Bytes returns the memory of one worker at a batch per device, rounded up.
func (m Memory) Bytes(localBatch int) int64 {
	return int64(math.Ceil(math.Min(m.FixedBytes+m.SampleBytes*float64(max(localBatch, 0)), math.MaxInt64/2)))
}

// Reserved returns the part of a shared device that a worker gets at a batch per device.
func (m Memory) Reserved(localBatch int) unit.Bytes {
	// margin covers memory that training code does not report, above all its context on the device, and later growth.
	const margin = 1.15
	return unit.Bytes(math.Min(margin*(float64(m.Bytes(localBatch))+m.ErrorBytes), math.MaxInt64/2))
}

// Model is all that is learned about one job. Every part may be missing.
type Model struct {
	Job         string       `json:"job"`
	Convergence *Convergence `json:"convergence,omitempty"`
	Speed       Speed        `json:"speed"`
	Efficiency  *Efficiency  `json:"efficiency,omitempty"`
	Memory      *Memory      `json:"memory,omitempty"`
	// Ran are the measured configurations, with the batch that really ran.
	Ran []Ran `json:"ran,omitempty"`
	// Progress is the training done, in steps at Efficiency.BaseBatch: each step counts by its gain.
	Progress float64 `json:"progress,omitempty"`
	// StartSeconds is the mean time from the start of an attempt to its first step; zero until one has begun.
	StartSeconds float64 `json:"start_seconds,omitempty"`

	// EpochSeconds is the typical duration of the latest epochs on EpochConfig; zero if none has ended.
	EpochSeconds float64 `json:"epoch_seconds,omitempty"`
	EpochConfig  Config  `json:"epoch_config"`
	// EpochSteps is the number of steps of such an epoch; zero if the job does not report it.
	EpochSteps float64 `json:"epoch_steps,omitempty"`
	// EpochSpread is the relative deviation of later epochs from EpochSeconds.
	EpochSpread float64 `json:"epoch_spread,omitempty"`
	// EpochsSeen and StepsSeen count the evidence: ended epochs, and the weight of all step samples.
	EpochsSeen int     `json:"epochs_seen"`
	StepsSeen  float64 `json:"steps_seen"`

	// Kin is how long other jobs of the family ran; nil until one has succeeded.
	Kin *Kin `json:"kin,omitempty"`

	// Stragglers are the workers that held up the others, at most MaxStragglers.
	Stragglers []Straggler `json:"stragglers,omitempty"`
}

// Kin is how long jobs of one family ran.
type Kin struct {
	// Jobs is the number of runs, those with the same command alone if there are any. Config is that of the newest.
	Jobs   int    `json:"jobs"`
	Config Config `json:"config"`
	// EpochSeconds is the time of a whole run divided by the number of epochs that were declared: it includes starts,
	// saves and an early end. Eight of ten runs lie between Low and High.
	EpochSeconds Span `json:"epoch_seconds"`
	// StepSeconds is the mean time of a step on Config; 0 if none was reported.
	StepSeconds float64 `json:"step_seconds,omitempty"`
}

// epochSecondsOn scales the time of an epoch to another configuration, and to a job with another step time.
func (k Kin) epochSecondsOn(cfg Config, speed Speed, stepsPerEpoch func(Config) float64) Span {
	ratio := 1.0
	if steps := stepsPerEpoch(k.Config); steps > 0 {
		ratio = stepsPerEpoch(cfg) / steps
	}
	if k.StepSeconds > 0 && speed.Known() {
		ratio *= speed.StepSeconds(cfg) / k.StepSeconds
	}
	return Span{Expected: ratio * k.EpochSeconds.Expected, Low: ratio * k.EpochSeconds.Low, High: ratio * k.EpochSeconds.High}
}

// EpochsLeft predicts, by the stop rule, the epochs that remain for a running job after epochsDone epochs (fractions
// count). Without a fitted convergence the interval starts at one epoch, since the job may stop at any.
func (m Model) EpochsLeft(epochsDone float64, rule StopRule) Span {
	limit := math.Max(rule.MaxEpochs, 0)
	total := Span{Expected: limit, Low: limit, High: limit}
	if rule.MinDecrease > 0 {
		total.Low = 0
		if m.Convergence != nil {
			total = m.Convergence.EpochsUntil(rule.MinDecrease, rule.Patience, int(math.Ceil(limit)))
		}
	}
	left := Span{Expected: total.Expected - epochsDone, Low: total.Low - epochsDone, High: total.High - epochsDone}
	if rule.MinDecrease > 0 {
		// A running job has not met the rule, whatever the curve says: it still lacks between one calm epoch and all of
		// them.
		patience := float64(max(rule.Patience, 1))
		left = Span{Expected: math.Max(left.Expected, (1+patience)/2), Low: math.Max(left.Low, 1), High: math.Max(left.High, patience)}
	}
	most := math.Max(limit-epochsDone, 0)
	return Span{
		Expected: math.Min(math.Max(left.Expected, 0), most),
		Low:      math.Min(math.Max(left.Low, 0), most),
		High:     math.Min(math.Max(left.High, 0), most),
	}
}

// Times reports whether the model can predict the epochs of a job: one was measured, of the job or of its
// family, or the time of its known steps.
func (m Model) Times(s *Spec) bool {
	return m.EpochSeconds > 0 || m.Kin != nil || m.Speed.Known() && (s.TrainingSetSize > 0 || s.MaxSteps > 0)
}

// EpochSecondsOn predicts one epoch on a configuration. The time of an observed epoch beyond its steps (validation,
// loading, checkpoints) is added to every configuration unchanged. stepsPerEpoch depends on the global batch; if an
// observed epoch had more or fewer steps than it says, so have all predicted epochs. Before the job's first epoch,
// whole runs of its family count. It returns false if nothing was ever measured, or only steps and stepsPerEpoch is 0.
func (m Model) EpochSecondsOn(cfg Config, stepsPerEpoch func(Config) float64) (float64, bool) {
	if m.EpochSeconds > 0 && cfg == m.EpochConfig {
		return m.EpochSeconds, true
	}
	if m.EpochsSeen == 0 && m.Kin != nil {
		return m.Kin.epochSecondsOn(cfg, m.Speed, stepsPerEpoch).Expected, true
	}
	if !m.Speed.Known() || m.EpochSeconds == 0 && stepsPerEpoch(cfg) == 0 {
		return 0, false
	}
	overhead, more := 0.0, 1.0
	if m.EpochSeconds > 0 {
		steps := stepsPerEpoch(m.EpochConfig)
		if m.EpochSteps > 0 && steps > 0 {
			more = m.EpochSteps / steps
		}
		overhead = math.Max(m.EpochSeconds-more*steps*m.Speed.StepSeconds(m.EpochConfig), 0)
	}
	return overhead + more*stepsPerEpoch(cfg)*m.Speed.StepSeconds(cfg), true
}

const (
	// meanOf is how many epochs the predicted time of one is taken from.
	meanOf = 3
	// meanDeviation is how many deviations of a mean are within the interval. It is less than the 1.28 of a normal
	// distribution: the spread of epochs counts a drift that the newest ones do not have.
	meanDeviation = 0.5
)

// RemainingSeconds predicts the time that a job still needs on cfg: epochs left times seconds per epoch. The interval
// combines both uncertainties. It returns false if the job's speed is unknown.
func (m Model) RemainingSeconds(cfg Config, epochsDone float64, rule StopRule, stepsPerEpoch func(Config) float64) (Span, bool) {
	each, ok := m.EpochSecondsOn(cfg, stepsPerEpoch)
	if !ok {
		return Span{}, false
	}
	if m.EpochsSeen == 0 && m.Kin != nil { // whole runs include an early end
		left, epoch := math.Max(rule.MaxEpochs-epochsDone, 0), m.Kin.epochSecondsOn(cfg, m.Speed, stepsPerEpoch)
		return Span{Expected: left * epoch.Expected, Low: left * epoch.Low, High: left * epoch.High}, true
	}
	left := m.EpochsLeft(epochsDone, rule)
	slack, spread := 1+m.Speed.RelativeError(cfg), m.EpochSpread
	if m.EpochSeconds > 0 && cfg == m.EpochConfig {
		// Epochs drift the further from those that were seen, the more are left; and few of them deviate more than many.
		slack = 1 + measuredError
		ahead := math.Max(left.Expected, 1)
		spread *= meanDeviation * math.Sqrt(ahead/(meanOf*float64(max(m.EpochsSeen, 1)))+1/ahead)
	}
	slack *= 1 + spread
	return Span{Expected: left.Expected * each, Low: left.Low * each / slack, High: left.High * each * slack}, true
}
