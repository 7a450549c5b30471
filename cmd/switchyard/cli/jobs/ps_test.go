package jobs

import (
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestPS(t *testing.T) {
	s := clitest.New(t, Commands()...)
	if err := Ps(t.Context(), s.Console, s.Yard(clitest.Noon), PsOptions{}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	if out, stderr := s.Printed(); out != "" || !strings.Contains(stderr, "no jobs yet") {
		t.Fatalf("%q, %q", out, stderr)
	}
	s.Output = "json"
	if err := Ps(t.Context(), s.Console, s.Yard(clitest.Noon), PsOptions{}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	if out, _ := s.Printed(); out != "[]\n" {
		t.Fatalf("nothing is %q", out)
	}
	s.Fill(t)
	if err := Ps(t.Context(), s.Console, s.Yard(clitest.Noon), PsOptions{AllUsers: true}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	out, _ := s.Printed()
	clitest.Golden(t, "ps.json", out)
	s.Output = "table"
	if err := Ps(t.Context(), s.Console, s.Yard(clitest.Noon), PsOptions{AllUsers: true}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	out, stderr := s.Printed()
	clitest.Golden(t, "ps.txt", out)
	// The rejected submission and the trials of an experiment are asked for.
	if stderr != "1 rejected submission not shown (--rejected shows them)\n" {
		t.Errorf("on stderr: %q", stderr)
	}
	clitest.Put(t, s.Bus, contract.Experiments, "digits", contract.ExperimentRecord{ID: "digits", Trials: []contract.Trial{{Job: "digits-t1"}}})
	for _, id := range []train.JobID{"digits-t1", "other-t1"} {
		clitest.PutJob(t, s.Bus, train.Job{ID: id, State: train.StateSucceeded, SubmittedAt: clitest.Ago(24 * time.Hour)})
	}
	if _, out, stderr := s.Run("ps", "-A"); strings.Contains(out, "digits-t1") || !strings.Contains(out, "other-t1") || !strings.Contains(stderr, "1 trial not shown") {
		t.Errorf("%s%s", out, stderr)
	}
	if _, out, stderr := s.Run("ps", "-A", "--trials", "--rejected"); !strings.Contains(out, "digits-t1") || !strings.Contains(out, "huge") || stderr != "" {
		t.Errorf("%s%s", out, stderr)
	}
	labelled := clitest.Bert()
	labelled.Spec.Project, labelled.Spec.Labels = "nlp", map[string]string{"phase": "warmup"}
	clitest.PutJob(t, s.Bus, labelled)
	if _, out, _ := s.Run("ps", "--user", "bob", "--project", "nlp", "--label", "phase=warmup", "--name", "b?rt"); strings.Count(out, "\n") != 2 || !strings.Contains(out, "PROJECT  LABELS") ||
		!strings.Contains(out, "nlp      phase=warmup") {
		t.Error(out)
	}
	if _, out, stderr := s.Run("ps", "-A", "--label", "phase=full"); out != "" || !strings.Contains(stderr, "no job with this name, project and labels; ") {
		t.Error(out, stderr)
	}
	if err := Ps(t.Context(), s.Console, s.Yard(clitest.Noon), PsOptions{AllUsers: true, Newest: 2, selector: selector{states: []string{"queued", "running", "failed"}}}, clitest.Noon); err != nil {
		t.Fatal(err)
	}
	out, stderr = s.Printed()
	if strings.Count(out, "\n") != 3 || !strings.Contains(stderr, "1 older job not shown (-n 3 shows all)") {
		t.Errorf("%q, %q", out, stderr)
	}
}

func TestPSRefusesWhatItCannotMean(t *testing.T) {
	for want, args := range map[string][]string{
		"did you mean running?":        {"ps", "--state", "runing"},
		"-n 0: want 1 or more":         {"ps", "-n", "0"},
		"accepts at most 1 arg":        {"ps", "sweep", "more"},
		"want a label as KEY=VALUE":    {"ps", "--label", "warmup"},
		"--name \"[\": want a pattern": {"ps", "--name", "["},
		"found both":                   {"ps", "-A", "--user", "ann"},
		"want table or json":           {"ps", "-o", "xml"},
		"states are submitted, queue":  {"ps", "--state", "xxxxxxxxxxxxxxxxx"},
	} {
		if code, _, stderr := clitest.Execute(Commands(), "", args...); code != exit.Usage || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
}
