package jobapi

import (
	"slices"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestTheReportSaysHowFarTheCodeIs: from the first heartbeat on, and again after the end of an epoch.
func TestTheReportSaysHowFarTheCodeIs(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.background()
	b.put(attempt(1))
	const base = "/attempt/" + token + "1/v1/jobs/" + capability
	b.want("POST", base+"/steps", `{"step":10,"epoch":0,"epoch_step":10,"epoch_steps":500,"steps":10,"step_seconds":0.5}`, 200, "{}")
	got := b.report(1).Steps
	if want := (train.Steps{Done: 10, Of: 500, Total: 10, Seconds: 0.5, At: got.At}); got != want || !got.Known() {
		t.Errorf("after ten steps: %+v, want %+v", got, want)
	}
	b.want("POST", base+"/steps", `{"step":11,"epoch_step":11,"epoch_steps":500,"rank":1}`, 200, "{}")
	b.want("POST", base+"/epochs", `{"epochs_done":1}`, 200, "{}")
	if got := b.report(1).Steps; got.Epoch != 1 || got.Done != 0 || got.Of != 500 || got.Total != 10 {
		t.Errorf("after the epoch: %+v", got)
	}
	beats := facts[event.Stepped](b, event.StreamSamples, event.FactStepped, 2) // stored in any order
	if !slices.ContainsFunc(beats, func(beat event.Stepped) bool { return beat.Rank == 0 && beat.EpochStep == 10 && beat.EpochSteps == 500 }) {
		t.Errorf("heartbeats %+v", beats)
	}
	b.wantError("POST", base+"/steps", `{"step":1,"epoch_step":-1,"epoch_steps":-1}`, 400, "BadRequest", "epoch_step: want 0 or more, found -1; epoch_steps: want 0 or more, found -1")
}

// TestOlderLibrariesCountNoStepsOfTheEpoch: those since the last end of an epoch count, also for the next agent.
func TestOlderLibrariesCountNoStepsOfTheEpoch(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.put(attempt(1))
	b.want("POST", "/profiling/"+capability, `{"iternum":20,"meandur":0.25,"gpumem":0}`, 200, "ok")
	if got := b.report(1).Steps; got.Done != 20 || got.Of != 0 || got.Seconds != 0.25 {
		t.Errorf("first epoch: %+v", got)
	}
	b.want("POST", "/profiling/"+capability, `{"iternum":100,"meandur":0.25,"gpumem":0,"epochDur":25}`, 200, "ok")
	b.want("POST", "/end_epoch/"+capability, `{"done":1}`, 200, "ok")
	b.restart()
	asked := attempt(1)
	asked.Stop, asked.StopSince = train.StopPreempt, time.Now().Add(time.Minute)
	b.put(asked) // the next heartbeat is written at once, however new the last one is
	b.want("POST", "/profiling/"+capability, `{"iternum":130,"meandur":0.25,"gpumem":0}`, 200, "ok")
	if got := b.report(1).Steps; got.Epoch != 1 || got.Done != 30 || got.Total != 130 {
		t.Errorf("second epoch: %+v", got)
	}
}

// TestCodeThatStopsAtAnyStepHearsOfAStop: with the answer to its heartbeat. Only control's answer is a stop.
func TestCodeThatStopsAtAnyStepHearsOfAStop(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.put(attempt(1))
	const base = "/attempt/" + token + "1/v1/jobs/" + capability
	beat := `{"step":10,"epoch_step":10,"epoch_steps":500,"steps":10,"step_seconds":0.5,"stops_at_steps":true}`
	b.want("POST", base+"/steps", beat, 200, "{}")
	if !b.report(1).AnyStep {
		t.Error("the report does not say that it can stop at any step")
	}
	asked := attempt(1)
	asked.Stop, asked.StopSince = train.StopPreempt, time.Now()
	b.put(asked)
	b.want("POST", base+"/steps", `{"step":11}`, 200, "{}") // code that cannot stop within an epoch is not told
	b.want("POST", base+"/steps", beat, 200, `{"stop":true}`)
	if b.report(1).StopAnswered {
		t.Error("a heartbeat counts as an answer")
	}
	b.want("POST", base+"/checkpoints", `{"epochs_done":0,"epoch_step":20,"epoch_steps":500,"path":"/snapshots/x"}`, 200, "{}")
	b.want("GET", base+"/control?epochs_done=0&step=20", "", 200, `{"stop":true,"micro_batch":null,"accumulation":null,"generation":0}`)
	if r := b.report(1); !r.StopAnswered || r.CheckpointStep != 20 || r.CheckpointEpochs != 0 {
		t.Errorf("report %+v", r)
	}
}
