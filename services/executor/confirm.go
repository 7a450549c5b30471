package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
)

// confirmPatience is how long the agents of the nodes, the training code and the planner may take to do what is wanted: they hear of it by themselves, and what
// they measure, tell and plan says whether they did.
const confirmPatience = 30 * time.Second

// confirm finds out whether an attempt has those parameters that others give it: its places tell the devices, a heartbeat the micro-batch, a measurement the
// power limits.
func (e *executor) confirm(ctx context.Context, a train.Attempt, wish train.Setting, now *retuning, applied *train.Applied) error {
	if wish.Wants(train.SettingDevices) {
		e.confirmDevices(a, wish, now, applied)
	}
	if wish.Wants(train.SettingMicroBatch) {
		if err := e.confirmMicroBatch(ctx, a, wish, now, applied); err != nil {
			return err
		}
	}
	if wish.Wants(train.SettingPowerLimit) {
		return e.confirmPowerLimit(ctx, a, wish, *now, applied)
	}
	return nil
}

// confirmDevices waits for a plan that gives the job as many devices as are wanted: then the attempt leaves for them, as for any such plan, and the next one has
// them. No plan moves code that comes up and has said nothing yet.
func (e *executor) confirmDevices(a train.Attempt, wish train.Setting, now *retuning, applied *train.Applied) {
	name, wanted := train.SettingDevices, int(wish.Values[train.SettingDevices])
	has := a.DeviceCount()
	applied.TakeByRestart(name, float64(wanted), float64(has))
	if now.up.IsZero() && e.picture.up(a) {
		now.up = time.Now()
	}
	late := !now.up.IsZero() && time.Since(now.up) > confirmPatience
	if has != wanted && e.picture.planned(a.Job) != wanted && late {
		applied.Refuse(name, fmt.Sprintf("no plan gives it %d devices without taking some from others, and within quota and power budget; it has %d", wanted, has))
	}
}

func (e *executor) confirmMicroBatch(ctx context.Context, a train.Attempt, wish train.Setting, now *retuning, applied *train.Applied) error {
	name := train.SettingMicroBatch
	wanted, possible := wish.MicroBatch(a.DeviceCount())
	if !possible {
		applied.Refuse(name, fmt.Sprintf("a step has %d samples", wish.BatchOn(a.DeviceCount(), wish.BatchSize)))
		return nil
	}
	beat, told, err := last[event.Stepped](ctx, e.bus, event.Subject{Entity: "sample", ID: string(a.Job), Fact: event.FactStepped, Version: 1})
	if err != nil {
		return err
	}
	if !told || beat.Attempt != a.Number {
		if time.Since(now.begun) > confirmPatience && e.picture.trains(a) {
			applied.Refuse(name, "its code sends no heartbeats")
		}
		return nil
	}
	if now.heard.IsZero() {
		now.heard = time.Now()
	}
	switch late := time.Since(now.heard) > confirmPatience; {
	case beat.Generation == wish.Generation && beat.MicroBatch == wanted.MicroBatch:
		applied.Take(name, wish.Values[name])
	case late && beat.MicroBatch == 0:
		applied.Refuse(name, "its code does not say that it can follow")
	case late:
		applied.Refuse(name, fmt.Sprintf("its code runs with %d", beat.MicroBatch))
	}
	return nil
}

// up says whether the code of an attempt has come up, as far as it will ever say so.
func (p *picture) up(a train.Attempt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reports[diff.ReportKey{Job: a.Job, Number: a.Number}].Spoke || p.jobs[a.Job].Value.Spec.LogFormat != ""
}

// trains says whether an attempt is past the time in which its code may come up without a word: it has ended an epoch, or never tells more than its output does.
func (p *picture) trains(a train.Attempt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	report := p.reports[diff.ReportKey{Job: a.Job, Number: a.Number}]
	return report.EpochsDone > a.StartedEpochs || p.jobs[a.Job].Value.Spec.LogFormat != ""
}

func (e *executor) confirmPowerLimit(ctx context.Context, a train.Attempt, wish train.Setting, now retuning, applied *train.Applied) error {
	name, watts := train.SettingPowerLimit, wish.Values[train.SettingPowerLimit]
	late := time.Since(now.begun) > confirmPatience
	for _, part := range a.Places() {
		if len(part.Devices) > 0 && part.Devices[0].Kind() != train.KindGPU {
			applied.Refuse(name, "CPU slots have no power limit")
			return nil
		}
		m, told, err := last[event.Measured](ctx, e.bus, event.Subject{Entity: "energy", ID: string(part.Node), Fact: event.FactMeasured, Version: 1})
		if err != nil {
			return err
		}
		if told && m.Holds(part.Devices, watts) {
			continue
		}
		if limits, known := m.Limits(part.Devices); late && known {
			applied.Refuse(name, fmt.Sprintf("the devices on %s are at %v W", part.Node, limits))
		} else if late {
			applied.Refuse(name, fmt.Sprintf("nobody measures the power limits of its devices on %s", part.Node))
		}
		return nil
	}
	applied.Take(name, watts)
	return nil
}

// last reads the newest sample of a subject; told is false where there is none that can be read.
func last[T any](ctx context.Context, b *bus.Bus, subject event.Subject) (body T, told bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	m, err := b.Last(ctx, event.StreamSamples, subject)
	if errors.Is(err, bus.ErrNotFound) {
		return body, false, nil
	}
	if err != nil {
		return body, false, err
	}
	body, err = event.Decode[T](m.Data)
	return body, err == nil, nil
}
