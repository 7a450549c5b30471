package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestPS(t *testing.T) {
	s := newTerminal(t)
	if err := s.ps(t.Context(), s.bus, psOptions{}, noon); err != nil {
		t.Fatal(err)
	}
	if out, stderr := s.printed(); out != "" || !strings.Contains(stderr, "no jobs yet") {
		t.Fatalf("%q, %q", out, stderr)
	}
	s.output = "json"
	if err := s.ps(t.Context(), s.bus, psOptions{}, noon); err != nil {
		t.Fatal(err)
	}
	if out, _ := s.printed(); out != "[]\n" {
		t.Fatalf("nothing is %q", out)
	}
	s.fill(t)
	if err := s.ps(t.Context(), s.bus, psOptions{allUsers: true}, noon); err != nil {
		t.Fatal(err)
	}
	out, _ := s.printed()
	golden(t, "ps.json", out)
	s.output = "table"
	if err := s.ps(t.Context(), s.bus, psOptions{allUsers: true}, noon); err != nil {
		t.Fatal(err)
	}
	out, stderr := s.printed()
	golden(t, "ps.txt", out)
	if stderr != "" {
		t.Errorf("on stderr: %q", stderr)
	}
	if err := s.ps(t.Context(), s.bus, psOptions{allUsers: true, newest: 2, states: []string{"queued", "running", "failed"}}, noon); err != nil {
		t.Fatal(err)
	}
	out, stderr = s.printed()
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
		var out, stderr strings.Builder
		if code := Main(append([]string{"switchyard"}, args...), strings.NewReader(""), &out, &stderr); code != ExitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%v: exit %d, %q", args, code, stderr.String())
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
		jobs = append(jobs, train.Job{ID: train.JobID(fmt.Sprintf("j%02d", i)), State: state, Spec: train.Spec{User: "ann"}, SubmittedAt: ago(time.Duration(i) * time.Minute)})
	}
	jobs = append(jobs, train.Job{ID: "bobs", State: train.StateRunning, Spec: train.Spec{User: "bob"}, SubmittedAt: ago(-time.Second)},
		train.Job{ID: "nobodys", State: train.StateSubmitted, SubmittedAt: ago(-2 * time.Second)})
	ids := func(list []train.Job) (ids []string) {
		for _, j := range list {
			ids = append(ids, string(j.ID))
		}
		return ids
	}
	kept, left := psOptions{}.choose(slices.Clone(jobs), "ann")
	want := []string{"nobodys"}
	for i := range 20 {
		want = append(want, fmt.Sprintf("j%02d", i))
	}
	if diff := cmp.Diff(append(want, "j28", "j29"), ids(kept)); diff != "" || left.older != 8 || left.others != 1 {
		t.Errorf("%+v\n%s", left, diff)
	}
	kept, left = psOptions{newest: 2, allUsers: true}.choose(slices.Clone(jobs), "ann")
	if diff := cmp.Diff([]string{"nobodys", "bobs"}, ids(kept)); diff != "" || left.older != 30 || left.others != 0 {
		t.Errorf("%+v\n%s", left, diff)
	}
	kept, left = psOptions{states: []string{"running"}}.choose(slices.Clone(jobs), "bob")
	if diff := cmp.Diff([]string{"bobs"}, ids(kept)); diff != "" || left.others != 30 || left.otherStates != 1 {
		t.Errorf("%+v\n%s", left, diff)
	}
}
