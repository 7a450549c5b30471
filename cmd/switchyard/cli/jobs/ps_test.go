package jobs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestPS(t *testing.T) {
	s := clitest.New(t, Commands()...)
	if err := Ps(t.Context(), s.Console, s.Bus, PsOptions{}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	if out, stderr := s.Printed(); out != "" || !strings.Contains(stderr, "no jobs yet") {
		t.Fatalf("%q, %q", out, stderr)
	}
	s.Output = "json"
	if err := Ps(t.Context(), s.Console, s.Bus, PsOptions{}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	if out, _ := s.Printed(); out != "[]\n" {
		t.Fatalf("nothing is %q", out)
	}
	s.Fill(t)
	if err := Ps(t.Context(), s.Console, s.Bus, PsOptions{AllUsers: true}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	out, _ := s.Printed()
	clitest.Golden(t, "ps.json", out)
	s.Output = "table"
	if err := Ps(t.Context(), s.Console, s.Bus, PsOptions{AllUsers: true}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	out, stderr := s.Printed()
	clitest.Golden(t, "ps.txt", out)
	// The rejected submission and the trials of an experiment are asked for.
	if stderr != "1 rejected submission not shown (--rejected shows them)\n" {
		t.Errorf("on stderr: %q", stderr)
	}
	clitest.Put(t, s.Bus, contract.Experiments, "digits", contract.ExperimentRecord{ID: "digits"})
	for _, id := range []train.JobID{"digits-t1", "other-t1"} {
		clitest.PutJob(t, s.Bus, train.Job{ID: id, State: train.StateSucceeded, SubmittedAt: clitest.Ago(24 * time.Hour)})
	}
	if _, out, stderr := s.Run("ps", "-A"); strings.Contains(out, "digits-t1") || !strings.Contains(out, "other-t1") || !strings.Contains(stderr, "1 trial not shown") {
		t.Errorf("%s%s", out, stderr)
	}
	if _, out, stderr := s.Run("ps", "-A", "--trials", "--rejected"); !strings.Contains(out, "digits-t1") || !strings.Contains(out, "huge") || stderr != "" {
		t.Errorf("%s%s", out, stderr)
	}
	if err := Ps(t.Context(), s.Console, s.Bus, PsOptions{AllUsers: true, Newest: 2, states: []string{"queued", "running", "failed"}}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	out, stderr = s.Printed()
	if strings.Count(out, "\n") != 3 || !strings.Contains(stderr, "1 older job not shown (-n 3 shows all)") {
		t.Errorf("%q, %q", out, stderr)
	}
}

func TestPSRefusesWhatItCannotMean(t *testing.T) {
	for want, args := range map[string][]string{
		"did you mean running?":       {"ps", "--state", "runing"},
		"-n 0: want 1 or more":        {"ps", "-n", "0"},
		"unknown command":             {"ps", "extra"},
		"want table or json":          {"ps", "-o", "xml"},
		"states are submitted, queue": {"ps", "--state", "xxxxxxxxxxxxxxxxx"},
	} {
		if code, _, stderr := clitest.Execute(Commands(), "", args...); code != exit.Usage || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
}

func TestPSChoosesJobs(t *testing.T) {
	var jobs []train.Job
	for i := range 30 {
		state := train.StateSucceeded
		if i == 29 || i == 28 { // the oldest ones still run
			state = train.StateRunning
		}
		jobs = append(jobs, train.Job{ID: train.JobID(fmt.Sprintf("j%02d", i)), State: state, Spec: train.Spec{User: "ann"}, SubmittedAt: clitest.Ago(time.Duration(i) * time.Minute)})
	}
	jobs = append(jobs, train.Job{ID: "bobs", State: train.StateRunning, Spec: train.Spec{User: "bob"}, SubmittedAt: clitest.Ago(-time.Second)},
		train.Job{ID: "nobodys", State: train.StateSubmitted, SubmittedAt: clitest.Ago(-2 * time.Second)})
	ids := func(list []train.Job) (ids []string) {
		for _, j := range list {
			ids = append(ids, string(j.ID))
		}
		return ids
	}
	kept, left := PsOptions{}.Choose(slices.Clone(jobs), "ann")
	want := []string{"nobodys"}
	for i := range 20 {
		want = append(want, fmt.Sprintf("j%02d", i))
	}
	if diff := cmp.Diff(append(want, "j28", "j29"), ids(kept)); diff != "" || left.Older != 8 || left.Others != 1 {
		t.Errorf("%+v\n%s", left, diff)
	}
	kept, left = PsOptions{Newest: 2, AllUsers: true}.Choose(slices.Clone(jobs), "ann")
	if diff := cmp.Diff([]string{"nobodys", "bobs"}, ids(kept)); diff != "" || left.Older != 30 || left.Others != 0 {
		t.Errorf("%+v\n%s", left, diff)
	}
	kept, left = PsOptions{states: []string{"running"}}.Choose(slices.Clone(jobs), "bob")
	if diff := cmp.Diff([]string{"bobs"}, ids(kept)); diff != "" || left.Others != 30 || left.otherStates != 1 {
		t.Errorf("%+v\n%s", left, diff)
	}
}
