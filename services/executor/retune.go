package executor

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// retuner gives running attempts the system parameters that are wanted for their jobs.
type retuner struct {
	*shared
	backend   backend
	retunings map[diff.ReportKey]retuning
	// reasons says whether an attempt needs a restart for its parameters, and why; without a code it does not.
	reasons map[diff.ReportKey]train.Reason
}

func newRetuner(s *shared, b backend) *retuner {
	return &retuner{shared: s, backend: b, retunings: map[diff.ReportKey]retuning{}, reasons: map[diff.ReportKey]train.Reason{}}
}

func (r *retuner) forget(key diff.ReportKey) {
	delete(r.retunings, key)
	delete(r.reasons, key)
}

// retuning is how far a running attempt has got with a setting.
type retuning struct {
	generation uint64
	begun      time.Time
	// published is set once a fact about the setting was published; pending are the parameters it listed as pending.
	published bool
	pending   []string
	// firstBeat is when the code of the attempt first sent a heartbeat; up is when it was first seen to have come up.
	firstBeat, up time.Time
}

func (r retuning) settled() bool { return r.published && len(r.pending) == 0 }

// retune gives a running attempt the wanted system parameters and publishes the result: the following epochs ran with
// them. The parameters that it was started with apply from the start. For parameters that need a restart it asks the
// attempt to leave. For an attempt that has exited it publishes what the attempt was started with. again is the delay
// before the next look, 0 if every change is an event.
func (r *retuner) retune(ctx context.Context, a train.Attempt, s launch.Status) (again time.Duration, err error) {
	setting, key := r.cache.setting(a.Job), diff.ReportKey{Job: a.Job, Number: a.Number}
	if s.Phase == launch.Exited {
		setting = a.Setting
	}
	before := r.retunings[key]
	if before.generation != setting.Generation {
		before = retuning{generation: setting.Generation, begun: time.Now()}
		r.retunings[key] = before
	}
	if setting.Generation == 0 {
		r.reasons[key] = train.Reason{} // an earlier setting was withdrawn
		return 0, nil
	}
	if before.settled() {
		return 0, nil
	}
	applied, err := r.tune(ctx, a, s, setting)
	if err == nil {
		err = r.confirm(ctx, a, setting, &before, &applied)
	}
	if err != nil {
		return 0, err
	}
	pending := applied.Pending(setting.Values)
	r.reasons[key] = restartReason(applied, pending)
	if !before.published || !slices.Equal(pending, before.pending) {
		if err := r.report(ctx, a, s, setting, applied, !before.published); err != nil {
			return 0, err
		}
	}
	before.published, before.pending = true, pending
	r.retunings[key] = before
	if before.settled() {
		return 0, nil
	}
	return launch.Later, nil
}

// report publishes which parameters an attempt has now. If it was started with all of them, it has had them since.
func (r *retuner) report(ctx context.Context, a train.Attempt, s launch.Status, setting train.Setting, applied train.Applied, first bool) error {
	pending := applied.Pending(setting.Values)
	applied.Job, applied.Attempt, applied.Generation, applied.At = a.Job, a.Number, setting.Generation, time.Now().UTC()
	byAgent := setting.Wants(train.SettingMicroBatch) || setting.Wants(train.SettingPowerLimit)
	if first && len(pending) == 0 && !byAgent && a.Setting.Generation == setting.Generation {
		applied.At = s.StartedAt
	}
	if err := r.publish(ctx, retunedFact(setting.Experiment, applied, pending)); err != nil {
		return err
	}
	r.log.Info("system parameters set", "job", a.Job, "attempt", a.Number, "generation", setting.Generation,
		"values", applied.Values, "refused", applied.Refused, "pending", pending)
	return nil
}

// tune lets the back end set what it can.
func (r *retuner) tune(ctx context.Context, a train.Attempt, s launch.Status, setting train.Setting) (train.Applied, error) {
	applied, err := r.backend.Retune(ctx, a, s, setting.Only(train.SettingCores, train.SettingMemoryMiB).Without(setting.AtStart...))
	if err != nil {
		return applied, err
	}
	for _, name := range setting.AtStart {
		applied.TakeByRestart(name, setting.Values[name], a.Setting.Values[name])
	}
	for name := range setting.Values {
		if !slices.Contains(train.SettingNames(), name) {
			applied.Refuse(name, "it cannot be changed while a job runs")
		}
	}
	if a.Stays == setting.Generation {
		why := "it needs a restart, and the job did not leave at the end of an epoch"
		if a.Setting.Generation == setting.Generation {
			why = "its pods must not be made with it"
		}
		for _, name := range applied.Restarts {
			if _, has := applied.Values[name]; has {
				continue
			}
			applied.Refuse(name, why)
		}
	}
	return applied, nil
}

// restartReason returns why an attempt has to leave for its pending parameters; without a code it does not. For other
// devices the plan makes it leave. Until such a plan exists, or never will, the other parameters wait, so that it
// restarts only once.
func restartReason(applied train.Applied, pending []string) train.Reason {
	if slices.Contains(pending, train.SettingDevices) {
		return train.Reason{}
	}
	names := slices.DeleteFunc(slices.Clone(pending), func(name string) bool { return !slices.Contains(applied.Restarts, name) })
	if len(names) == 0 {
		return train.Reason{}
	}
	return train.Reason{Code: retuneCode, Message: "it is started with another " + strings.Join(names, ", ")}
}

const retuneCode = "Retuned"
