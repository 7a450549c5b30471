package jobs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestWaitVerdict(t *testing.T) {
	for _, tc := range []struct {
		states string
		code   int
	}{
		{"succeeded", exit.OK},
		{"succeeded failed", exit.JobFailed},
		{"rejected", exit.JobFailed},
		{"cancelled succeeded", exit.JobCancelled},
		{"running", exit.Unfinished},
		{"queued cancelled", exit.Unfinished},
		{"queued cancelled failed", exit.JobFailed},
	} {
		var jobs []train.Job
		for state := range strings.FieldsSeq(tc.states) {
			jobs = append(jobs, train.Job{State: train.State(state)})
		}
		code, err := exit.OK, waitVerdict(jobs)
		if coded, ok := errors.AsType[*exit.Error](err); ok {
			code = coded.Code
		}
		if code != tc.code {
			t.Errorf("%s: exit %d, want %d", tc.states, code, tc.code)
		}
	}
}

func TestWait(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	for _, tc := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"mnist", "mnist-77de"}, exit.OK, "job mnist-77de succeeded: 10 epochs in 20 min\n"},
		{[]string{"vgg-0c", "mnist"}, exit.JobFailed, "job vgg-0c failed: attempt 1 ended with status 3\njob mnist-77de succeeded: 10 epochs in 20 min\n"},
		{[]string{"huge"}, exit.JobFailed, "job huge rejected: min_devices: 64 devices on one node, the largest has 4\n"},
		{[]string{"resnet", "--timeout", "1ms"}, exit.Unfinished, ""},
		{[]string{"resnet", "--timeout", "-1s"}, exit.Usage, ""},
		{nil, exit.Usage, ""},
	} {
		if code, out, stderr := s.Run(append([]string{"wait"}, tc.args...)...); code != tc.code || out != tc.out {
			t.Errorf("%v: exit %d, %q; want %d, %q; %s", tc.args, code, out, tc.code, tc.out, stderr)
		}
	}
	code, out, _ := s.Run("wait", "mnist", "vgg", "-o", "json")
	want := []waitRow{
		{ID: "mnist-77de", State: "succeeded", Reason: "Finished", Message: "10 epochs in 20 min", EpochsDone: 10, ExitCode: new(0)},
		{ID: "vgg-0c", State: "failed", Reason: "NonZeroExit", Message: "attempt 1 ended with status 3", EpochsDone: 2, ExitCode: new(3)},
	}
	if diff := cmp.Diff(want, clitest.Parse[[]waitRow](t, out)); code != exit.JobFailed || diff != "" {
		t.Errorf("exit %d\n%s", code, diff)
	}
}

// The end of a job is seen when it comes, and what comes after it changes nothing.
func TestWaitSeesTheEnd(t *testing.T) {
	t.Run("on the bus", func(t *testing.T) {
		s := clitest.New(t)
		s.Fill(t)
		seesTheEnd(t, s, s.Yard(clitest.Noon))
	})
	t.Run("on the socket", func(t *testing.T) {
		s := clitest.New(t)
		s.Fill(t)
		seesTheEnd(t, s, serveWeb(t, s))
	})
}

func seesTheEnd(t *testing.T, s *clitest.Terminal, y console.Yard) {
	t.Helper()
	var told []train.State
	jobs, err := watchToEnd(t.Context(), y, []train.Job{clitest.Resnet(), clitest.Bert(), clitest.Mnist()}, 0, func(j train.Job) {
		told = append(told, j.State)
		switch j.ID { // one end brings the next
		case "mnist-77de":
			j := clitest.Bert()
			j.State = train.StateCancelled
			clitest.PutJob(t, s.Bus, j)
		case "bert-91bc":
			j := clitest.Resnet()
			j.State = train.StateSucceeded
			clitest.PutJob(t, s.Bus, j)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]train.State{"succeeded", "cancelled", "succeeded"}, told); diff != "" {
		t.Error(diff)
	}
	if jobs[0].State != train.StateSucceeded || jobs[1].State != train.StateCancelled || jobs[2].ID != "mnist-77de" {
		t.Errorf("%v", jobs)
	}
}

func TestCancel(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	requests := clitest.Obey(t, s.Bus, train.StateCancelled)
	code, out, stderr := s.Run("cancel", "resnet", "bert", "--reason", "no longer needed")
	if code != exit.OK || out != "job resnet-4f2a cancelled\njob bert-91bc cancelled\n" {
		t.Fatalf("exit %d, %q, %q", code, out, stderr)
	}
	for range 2 {
		if r := <-requests; r.By != installation.CurrentUser() || r.Reason != "no longer needed" {
			t.Errorf("%+v", r)
		}
	}
	// Asked again it is done already; what has ended otherwise stays as it is.
	if code, out, _ = s.Run("cancel", "bert"); code != exit.OK || out != "job bert-91bc was cancelled before\n" {
		t.Errorf("exit %d, %q", code, out)
	}
	if code, _, stderr = s.Run("cancel", "mnist", "bert"); code != exit.Failed || !strings.Contains(stderr, "job mnist-77de had ended before: succeeded") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	code, out, _ = s.Run("cancel", "vgg", "-o", "json")
	want := []cancelRow{{ID: "vgg-0c", State: "failed", Result: "ended", Message: "had ended before: failed"}}
	if diff := cmp.Diff(want, clitest.Parse[[]cancelRow](t, out)); code != exit.Failed || diff != "" {
		t.Errorf("exit %d\n%s", code, diff)
	}
	again := clitest.Resnet()
	again.State, again.Resumed = train.StateRunning, 1
	clitest.PutJob(t, s.Bus, again)
	if code, out, stderr = s.Run("cancel", "resnet"); code != exit.OK || out != "job resnet-4f2a cancelled\n" {
		t.Errorf("resumed: exit %d, %q, %q", code, out, stderr)
	}
}

func TestCancelThatComesTooLate(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	clitest.Obey(t, s.Bus, train.StateSucceeded)
	if code, _, stderr := s.Run("cancel", "resnet"); code != exit.Failed || !strings.Contains(stderr, "ended before it could be cancelled: succeeded") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestCancelThatNobodyFollows(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	if code, out, _ := s.Run("cancel", "--no-wait", "resnet"); code != exit.OK || out != "job resnet-4f2a will be cancelled\n" {
		t.Errorf("exit %d, %q", code, out)
	}
	if code, _, stderr := s.Run("cancel", "--timeout", "1ms", "resnet"); code != exit.Failed || !strings.Contains(stderr, "still running") || !strings.Contains(stderr, "is the executor running?") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	// Where one is unknown nothing is asked for.
	if code, _, _ := s.Run("cancel", "bert", "entirely-else"); code != exit.Failed {
		t.Errorf("exit %d", code)
	}
	_, found, err := console.LastIfThere[event.CancelRequested](t.Context(), s.Bus, event.StreamJobs, event.JobSubject("bert-91bc", event.FactCancelRequested))
	if found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
	if code, _, _ := s.Run("cancel", "--timeout", (-time.Second).String(), "resnet"); code != exit.Usage {
		t.Errorf("exit %d", code)
	}
}
