package jobs

import (
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/describe"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// A job whose code reports no more steps says so wherever its state is shown.
func TestASilentJobSaysSo(t *testing.T) {
	s := clitest.New(t, append(Commands(), describe.Command)...)
	clitest.PutJob(t, s.Bus, train.Job{ID: "hung-1", State: train.StateRunning, Reason: "Training", Attempt: 1, SubmittedAt: clitest.Ago(time.Hour)})
	clitest.Put(t, s.Bus, contract.Attempts, "hung-1", train.Attempt{Job: "hung-1", Number: 1, Node: "n", Devices: []train.DeviceID{"gpu:0"}, Phase: train.PhaseRunning})
	report := train.AttemptReport{Job: "hung-1", Attempt: 1, Spoke: true, Steps: train.Steps{Total: 70, Seconds: 0.1, At: time.Now().Add(-2 * time.Minute)}}
	clitest.Put(t, s.Bus, contract.Reports, contract.ReportKey("hung-1", 1), report)
	if err := Ps(t.Context(), s.Console, s.Yard(time.Now()), PsOptions{AllUsers: true}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if out, _ := s.Printed(); !strings.Contains(out, train.CodeSilent) {
		t.Errorf("ps:\n%s", out)
	}
	if _, out, stderr := s.Run("describe", "hung-1"); !strings.Contains(out, "why         no step was reported for 2m") || !strings.Contains(out, "a step usually takes 100ms") {
		t.Errorf("describe:\n%s%s", out, stderr)
	}
	report.Steps.At = time.Now()
	clitest.Put(t, s.Bus, contract.Reports, contract.ReportKey("hung-1", 1), report)
	if err := Ps(t.Context(), s.Console, s.Yard(time.Now()), PsOptions{AllUsers: true}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if out, _ := s.Printed(); strings.Contains(out, train.CodeSilent) {
		t.Errorf("ps of a job that steps again:\n%s", out)
	}
}
