package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestWaitVerdict(t *testing.T) {
	for _, tc := range []struct {
		states string
		code   int
	}{
		{"succeeded", ExitOK},
		{"succeeded failed", ExitJobFailed},
		{"rejected", ExitJobFailed},
		{"cancelled succeeded", ExitJobCancelled},
		{"running", ExitUnfinished},
		{"queued cancelled", ExitUnfinished},
		{"queued cancelled failed", ExitJobFailed},
	} {
		var jobs []train.Job
		for state := range strings.FieldsSeq(tc.states) {
			jobs = append(jobs, train.Job{State: train.State(state)})
		}
		code, err := ExitOK, waitVerdict(jobs)
		if exit, isExit := errors.AsType[*exitError](err); isExit {
			code = exit.code
		}
		if code != tc.code {
			t.Errorf("%s: exit %d, want %d", tc.states, code, tc.code)
		}
	}
}

func TestWait(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	for _, tc := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"mnist", "mnist-77de"}, ExitOK, "job mnist-77de succeeded: 10 epochs in 20 min\n"},
		{[]string{"vgg-0c", "mnist"}, ExitJobFailed, "job vgg-0c failed: attempt 1 ended with status 3\njob mnist-77de succeeded: 10 epochs in 20 min\n"},
		{[]string{"huge"}, ExitJobFailed, "job huge rejected: min_devices: 64 devices on one node, the largest has 4\n"},
		{[]string{"resnet", "--timeout", "1ms"}, ExitUnfinished, ""},
		{[]string{"resnet", "--timeout", "-1s"}, ExitUsage, ""},
		{nil, ExitUsage, ""},
	} {
		if code, out, stderr := s.run(append([]string{"wait"}, tc.args...)...); code != tc.code || out != tc.out {
			t.Errorf("%v: exit %d, %q; want %d, %q; %s", tc.args, code, out, tc.code, tc.out, stderr)
		}
	}
	code, out, _ := s.run("wait", "mnist", "vgg", "-o", "json")
	want := []waitRow{
		{ID: "mnist-77de", State: "succeeded", Reason: "Finished", Message: "10 epochs in 20 min", EpochsDone: 10, ExitCode: new(0)},
		{ID: "vgg-0c", State: "failed", Reason: "NonZeroExit", Message: "attempt 1 ended with status 3", EpochsDone: 2, ExitCode: new(3)},
	}
	if diff := cmp.Diff(want, parse[[]waitRow](t, out)); code != ExitJobFailed || diff != "" {
		t.Errorf("exit %d\n%s", code, diff)
	}
}

// The end of a job is seen when it comes, and what comes after it changes nothing.
func TestWaitSeesTheEnd(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	var told []train.State
	jobs, err := watchToEnd(t.Context(), s.bus, []train.Job{resnet(), bert(), mnist()}, 0, func(j train.Job) {
		told = append(told, j.State)
		switch j.ID { // one end brings the next
		case "mnist-77de":
			j := bert()
			j.State = train.StateCancelled
			putJob(t, s.bus, j)
		case "bert-91bc":
			j := resnet()
			j.State = train.StateSucceeded
			putJob(t, s.bus, j)
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

// obey plays register and executor: it enters each request in the record of its job.
func obey(t *testing.T, b *bus.Bus, end train.State) (requests chan event.CancelRequested) {
	t.Helper()
	requests = make(chan event.CancelRequested, 10)
	ctx, stop := context.WithCancel(context.Background())
	var playing conc.WaitGroup
	playing.Go(func() {
		_ = b.Follow(ctx, event.StreamJobs, []string{"yard.job.*." + event.FactCancelRequested + ".v1"}, 1, func(m bus.Message) {
			body, err := event.Decode[event.CancelRequested](m.Data)
			if err != nil {
				t.Error(err)
			}
			requests <- body
			kv, err := bus.OpenKV[train.Job](ctx, b, event.BucketJobs)
			if err == nil {
				_, err = kv.Modify(ctx, m.Parsed.ID, func(j *train.Job) (bool, error) {
					j.CancelRequested, j.State = true, end
					return true, nil
				})
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	})
	t.Cleanup(func() {
		stop()
		playing.Wait()
	})
	return requests
}

func TestCancel(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	requests := obey(t, s.bus, train.StateCancelled)
	code, out, stderr := s.run("cancel", "resnet", "bert", "--reason", "no longer needed")
	if code != ExitOK || out != "job resnet-4f2a cancelled\njob bert-91bc cancelled\n" {
		t.Fatalf("exit %d, %q, %q", code, out, stderr)
	}
	for range 2 {
		if r := <-requests; r.By != currentUser() || r.Reason != "no longer needed" {
			t.Errorf("%+v", r)
		}
	}
	// Asked again it is done already; what has ended otherwise stays as it is.
	if code, out, _ = s.run("cancel", "bert"); code != ExitOK || out != "job bert-91bc was cancelled before\n" {
		t.Errorf("exit %d, %q", code, out)
	}
	if code, _, stderr = s.run("cancel", "mnist", "bert"); code != ExitError || !strings.Contains(stderr, "job mnist-77de had ended before: succeeded") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	code, out, _ = s.run("cancel", "vgg", "-o", "json")
	want := []cancelRow{{ID: "vgg-0c", State: "failed", Result: "ended", Message: "had ended before: failed"}}
	if diff := cmp.Diff(want, parse[[]cancelRow](t, out)); code != ExitError || diff != "" {
		t.Errorf("exit %d\n%s", code, diff)
	}
}

func TestCancelThatComesTooLate(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	obey(t, s.bus, train.StateSucceeded)
	if code, _, stderr := s.run("cancel", "resnet"); code != ExitError || !strings.Contains(stderr, "ended before it could be cancelled: succeeded") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestCancelThatNobodyFollows(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	if code, out, _ := s.run("cancel", "--no-wait", "resnet"); code != ExitOK || out != "job resnet-4f2a will be cancelled\n" {
		t.Errorf("exit %d, %q", code, out)
	}
	if code, _, stderr := s.run("cancel", "--timeout", "1ms", "resnet"); code != ExitError || !strings.Contains(stderr, "still running") || !strings.Contains(stderr, "is the executor running?") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	// Where one is unknown nothing is asked for.
	if code, _, _ := s.run("cancel", "bert", "entirely-else"); code != ExitError {
		t.Errorf("exit %d", code)
	}
	_, found, err := lastIfThere[event.CancelRequested](t.Context(), s.bus, event.StreamJobs, event.JobSubject("bert-91bc", event.FactCancelRequested))
	if found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
	if code, _, _ := s.run("cancel", "--timeout", (-time.Second).String(), "resnet"); code != ExitUsage {
		t.Errorf("exit %d", code)
	}
}
