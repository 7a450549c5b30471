package jobapi

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestASupervisorAsksForCodeThatCallsNothing: the report says by which signal the code can be asked to leave, and what
// it has saved, but not that it called.
func TestASupervisorAsksForCodeThatCallsNothing(t *testing.T) {
	b := newBench(t, bustest.Start(t))
	b.put(attempt(1))
	base := "/attempt/t0k3n1/v1/jobs/" + capability
	no, yes := `{"stop":false,"micro_batch":null,"accumulation":null,"generation":0}`, `{"stop":true,"micro_batch":null,"accumulation":null,"generation":0}`
	b.want("GET", base+"/control?signal=SIGTERM", "", 200, no)
	b.want("GET", base+"/control?signal=SIGUSR1", "", 200, no)
	b.want("GET", base+"/control?signal=SIGTERM", "", 200, no)
	b.wantError("GET", base+"/control?signal=SIGKILL", "", 400, "BadRequest", "want SIGUSR1 or SIGTERM")
	b.want("POST", base+"/checkpoints", `{"path":"/w/a.pt","bytes":9,"found":7}`, 200, "{}")
	if diff := cmp.Diff(train.AttemptReport{Job: "j1", Attempt: 1, Signal: "SIGUSR1", Checkpoint: "/w/a.pt", FoundCheckpoint: true}, b.report(1)); diff != "" {
		t.Error(diff)
	}
	saved := facts[event.CheckpointWritten](b, event.StreamJobs, event.FactCheckpointWritten, 1)
	if diff := cmp.Diff([]event.CheckpointWritten{{Attempt: 1, Path: "/w/a.pt", Size: 9}}, saved); diff != "" {
		t.Error(diff)
	}
	asked := attempt(1)
	asked.Stop, asked.StopSince = train.StopPreempt, time.Now()
	b.put(asked)
	b.want("GET", base+"/control?signal=SIGUSR1", "", 200, yes)
	if r := b.report(1); !r.StopAnswered || r.Spoke {
		t.Errorf("report %+v", r)
	}
}
