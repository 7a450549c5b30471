package curve

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// EpochRecord is one ended epoch. Fields the job does not report stay zero.
type EpochRecord struct {
	Epoch   int          `json:"epoch"`
	Loss    float64      `json:"loss,omitempty"`
	Seconds float64      `json:"seconds"`
	Config  train.Config `json:"config"`
	// Steps is the number of optimizer steps of the epoch; with it, an epoch can replace missing step samples.
	Steps int `json:"steps,omitempty"`
}

// History holds all observations of one job in the order in which they happened. It grows by appending; step samples
// and memory points may be folded on the way (Fold).
type History struct {
	Job    string          `json:"job"`
	Kind   train.SpeedKind `json:"kind"`
	On     DevicePrior     `json:"-"` // of the devices it runs on
	Epochs []EpochRecord   `json:"epochs,omitempty"`
	Steps  []StepSample    `json:"steps,omitempty"`
	Memory []MemoryPoint   `json:"memory,omitempty"`
}

// recentEpochs is the number of last epochs that describe a job's present state.
const recentEpochs = 3

// Refit learns the model of a job from its history. It never fails: it leaves out a part without enough evidence. It is
// cheap enough to run after each epoch.
func Refit(h History) train.Model {
	model := train.Model{Job: h.Job}
	points := make([]Point, 0, len(h.Epochs))
	for _, e := range h.Epochs {
		points = append(points, Point{Epoch: float64(e.Epoch), Loss: e.Loss})
	}
	if fit, err := FitConvergence(points); err == nil {
		model.Convergence = &fit
	}
	model.Speed = refitSpeed(h)
	for _, m := range model.Speed.Measured {
		if m.Error == 0 {
			model.StepsSeen += m.Weight
		}
	}
	if fit, err := FitMemory(h.Memory); err == nil {
		model.Memory = &fit
	}
	refitEpochs(&model, h.Epochs)
	return model
}

// refitSpeed fits the job's form; with too few configurations for a parameter-server form, the prior fills in.
func refitSpeed(h History) train.Speed {
	samples := h.Ran()
	if h.Kind == train.SpeedServersSync || h.Kind == train.SpeedServersAsync {
		if fit, err := FitSpeedPS(h.Kind, samples); err == nil {
			return fit
		}
		measured, typical := configurations(samples)
		if len(measured) == 0 {
			return train.Speed{Kind: h.Kind}
		}
		return fitServers(h.Kind, measured, typical, priorStrength)
	}
	fit, err := FitStepTime(samples, h.On)
	if err != nil {
		return train.Speed{Kind: train.SpeedAllReduce}
	}
	return fit
}

// stepsOfEpochs returns mean step times of epochs on configurations without a step sample of their own.
func stepsOfEpochs(h History) []StepSample {
	sampled := make(map[train.Config]bool, len(h.Steps))
	for _, s := range h.Steps {
		sampled[s.Config] = true
	}
	var derived []StepSample
	for _, e := range h.Epochs {
		if e.Steps > 0 && !sampled[e.Config] {
			derived = append(derived,
				StepSample{Config: e.Config, StepSeconds: e.Seconds / float64(e.Steps), Weight: float64(e.Steps)})
		}
	}
	return derived
}

// fewEpochs is the assumed relative deviation of later epochs if only one has been seen; after n epochs it is an n-th
// of that.
const fewEpochs = 0.1

// refitEpochs takes the median duration of the last epochs on the configuration of the very last one, since the first
// epoch after a start is often slower. The spread is that of all epochs on the configuration: durations drift over a
// training.
func refitEpochs(model *train.Model, epochs []EpochRecord) {
	var seconds, steps, logs []float64
	for _, e := range slices.Backward(epochs) {
		if !inRange(e.Seconds) || !plausible(e.Config) {
			continue
		}
		model.EpochsSeen++
		if len(seconds) == 0 {
			model.EpochConfig = e.Config
		}
		if e.Config != model.EpochConfig {
			continue
		}
		logs = append(logs, math.Log(e.Seconds))
		if len(seconds) < recentEpochs {
			seconds, steps = append(seconds, e.Seconds), append(steps, float64(max(e.Steps, 0)))
		}
	}
	if len(seconds) > 0 {
		model.EpochSeconds, model.EpochSteps = median(seconds), median(steps)
		deviation := 0.0
		if len(logs) > 1 {
			deviation = stat.StdDev(logs, nil)
		}
		model.EpochSpread = math.Min(math.Expm1(deviation)+fewEpochs/float64(len(logs)), 1)
	}
}
