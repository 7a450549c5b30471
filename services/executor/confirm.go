package executor

import (
	"context"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// confirmTime is how long the agents of the nodes, the training code and the planner may take to apply a setting.
// They learn of it by themselves, and what they measure, report and plan shows whether they did.
const confirmTime = 30 * time.Second

// confirm finds out whether an attempt has the parameters that others apply: its places show the devices, a heartbeat
// the micro-batch, a measurement the power limits.
func (r *retuner) confirm(ctx context.Context, a train.Attempt, setting train.Setting, now *retuning, applied *train.Applied) error {
	if setting.Wants(train.SettingDevices) {
		r.confirmDevices(a, setting, now, applied)
	}
	if setting.Wants(train.SettingMicroBatch) {
		if err := r.confirmMicroBatch(ctx, a, setting, now, applied); err != nil {
			return err
		}
	}
	if setting.Wants(train.SettingPowerLimit) {
		return r.confirmPowerLimit(ctx, a, setting, *now, applied)
	}
	return nil
}

// confirmDevices waits for a plan that gives the job as many devices as wanted. The attempt then leaves for them, as
// for any such plan, and the next one has them. No plan moves code that is starting up and has not called yet.
func (r *retuner) confirmDevices(a train.Attempt, setting train.Setting, now *retuning, applied *train.Applied) {
	name, wanted := train.SettingDevices, int(setting.Values[train.SettingDevices])
	has := a.DeviceCount()
	applied.TakeByRestart(name, float64(wanted), float64(has))
	if now.up.IsZero() && r.cache.progress(a).up {
		now.up = time.Now()
	}
	late := !now.up.IsZero() && time.Since(now.up) > confirmTime
	if has != wanted && r.cache.progress(a).planned != wanted && late {
		applied.Refuse(name, fmt.Sprintf("no plan gives it %d devices within quota and power budget without taking some from other jobs; it has %d", wanted, has))
	}
}

func (r *retuner) confirmMicroBatch(ctx context.Context, a train.Attempt, setting train.Setting, now *retuning, applied *train.Applied) error {
	name := train.SettingMicroBatch
	wanted, possible := setting.MicroBatch(a.DeviceCount())
	if !possible {
		applied.Refuse(name, fmt.Sprintf("a step has %d samples", setting.BatchOn(a.DeviceCount(), setting.BatchSize)))
		return nil
	}
	beat, found, err := lastSample[event.Stepped](ctx, r.bus, event.Subject{Entity: "sample", ID: string(a.Job), Fact: event.FactStepped, Version: 1})
	if err != nil {
		return err
	}
	if !found || beat.Attempt != a.Number {
		if time.Since(now.begun) > confirmTime && r.cache.progress(a).trains {
			applied.Refuse(name, "its code sends no heartbeats")
		}
		return nil
	}
	if now.firstBeat.IsZero() {
		now.firstBeat = time.Now()
	}
	switch late := time.Since(now.firstBeat) > confirmTime; {
	case beat.Generation == setting.Generation && beat.MicroBatch == wanted.MicroBatch:
		applied.Take(name, setting.Values[name])
	case late && beat.MicroBatch == 0:
		applied.Refuse(name, "its code does not report that it can change the micro-batch")
	case late:
		applied.Refuse(name, fmt.Sprintf("its code runs with %d", beat.MicroBatch))
	}
	return nil
}

func (r *retuner) confirmPowerLimit(ctx context.Context, a train.Attempt, setting train.Setting, now retuning, applied *train.Applied) error {
	name, watts := train.SettingPowerLimit, setting.Values[train.SettingPowerLimit]
	late := time.Since(now.begun) > confirmTime
	for _, part := range a.Places() {
		if len(part.Devices) > 0 && part.Devices[0].Kind() != train.KindGPU {
			applied.Refuse(name, "CPU slots have no power limit")
			return nil
		}
		m, found, err := lastSample[event.Measured](ctx, r.bus, event.Subject{Entity: "energy", ID: string(part.Node), Fact: event.FactMeasured, Version: 1})
		if err != nil {
			return err
		}
		if found && m.Holds(part.Devices, watts) {
			continue
		}
		if limits, known := m.Limits(part.Devices); late && known {
			applied.Refuse(name, fmt.Sprintf("the devices on %s are at %v W", part.Node, limits))
		} else if late {
			applied.Refuse(name, fmt.Sprintf("the power limits of its devices on %s are not measured", part.Node))
		}
		return nil
	}
	applied.Take(name, watts)
	return nil
}

// lastSample reads the newest sample of a subject. found is false without a sample that can be decoded.
func lastSample[T any](ctx context.Context, b *bus.Bus, subject event.Subject) (body T, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return bus.LastOf[T](ctx, b, event.StreamSamples, subject)
}
