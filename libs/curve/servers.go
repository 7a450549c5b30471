package curve

import (
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Least numbers of configurations for Optimus's parameter-server forms.
const (
	MinSyncConfigs  = 5
	MinAsyncConfigs = 4
)

// FitSpeedPS fits Optimus's parameter-server speed (EuroSys'18, equations 3 and 4), synchronous or asynchronous. It
// needs MinSyncConfigs or MinAsyncConfigs different configurations, else it returns ErrTooFew. Sample off the diagonal:
// if servers always equal workers, the terms in w/p and in 1, and those in w and in p, cannot be separated.
func FitSpeedPS(kind train.SpeedKind, samples []StepSample) (train.Speed, error) {
	if kind != train.SpeedServersSync && kind != train.SpeedServersAsync {
		return train.Speed{}, fmt.Errorf("fit parameter-server speed: kind %q is not one", kind)
	}
	measured, typical := configurations(samples)
	least := MinSyncConfigs
	if kind == train.SpeedServersAsync {
		least = MinAsyncConfigs
	}
	if len(measured) < least {
		return train.Speed{Kind: kind}, ErrTooFew
	}
	// The prior decides only what the samples leave open.
	return fitServers(kind, measured, typical, 1e-4), nil
}

// PriorServers is the belief about a parameter-server step before any sample, in units of a step of one worker and one
// server. In synchronous training 70 % is compute, which shrinks with the batch, 10 % does not shrink, and the rest
// goes to the three network terms. An asynchronous step has no batch term, so 80 % does not shrink.
func PriorServers(typicalBatch int, async bool) train.Servers {
	shape := train.Servers{PerSample: 0.7 / float64(typicalBatch), Fixed: 0.1, PerShare: 0.15, PerWorker: 0.04, PerServer: 0.01}
	if async {
		shape.PerSample, shape.Fixed = 0, 0.8
	}
	return shape
}

// fitServers fits with the prior above.
func fitServers(kind train.SpeedKind, measured []train.Measured, typical int, strength float64) train.Speed {
	speed := train.Speed{Kind: kind, Measured: measured, TypicalBatch: typical}
	async := kind == train.SpeedServersAsync
	shape := PriorServers(typical, async)
	eq := newEquations(5)
	var scales []float64
	for _, m := range measured {
		scales = append(scales, m.StepSeconds/shape.StepSeconds(m.Config, async))
		w, p := float64(m.Workers), float64(max(m.Servers, 1))
		row, target := []float64{float64(m.LocalBatch), 1, w / p, w, p}, m.StepSeconds
		if async {
			row[0], target = 0, m.StepSeconds*w
		}
		eq.add(row, target, 1/target)
	}
	prior{
		value:   []float64{shape.PerSample, shape.Fixed, shape.PerShare, shape.PerWorker, shape.PerServer},
		typical: []float64{float64(typical), 1, 2, 4, 2},
		scale:   median(scales),
	}.addTo(eq, strength)
	t := eq.solve()
	speed.Servers = train.Servers{PerSample: t[0], Fixed: t[1], PerShare: t[2], PerWorker: t[3], PerServer: t[4]}
	if async {
		speed.Servers.PerSample = 0 // no sample informs it
	}
	speed.FitError = relativeRMS(speed)
	return speed
}
