package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestPickJob(t *testing.T) {
	job := func(id, name, user string, minutes int) train.Job {
		return train.Job{ID: train.JobID(id), Spec: train.Spec{Name: name, User: user}, SubmittedAt: ago(time.Duration(minutes) * time.Minute)}
	}
	jobs := []train.Job{
		job("mnist-aa11", "mnist", "ann", 30), job("mnist-aa22", "mnist", "ann", 20), job("mnist-bb33", "mnist", "bob", 10), job("resnet-cc44", "resnet", "bob", 5),
		job("run1", "my run", "ann", 1), job("run1-more", "other", "ann", 1), job("nameless", "", "ann", 1),
	}
	for ref, want := range map[string]string{
		"mnist-aa11": "mnist-aa11", "mnist": "mnist-aa22", "mnist-b": "mnist-bb33", "res": "resnet-cc44", "my run": "run1", "run1": "run1", "run1-": "run1-more",
		"mnist-aa": "ambiguous", "m": "ambiguous", "nothing": "", "": "",
	} {
		got, found, err := pickJob(jobs, ref, "ann")
		switch {
		case want == "ambiguous":
			if err == nil || found || !strings.Contains(err.Error(), "mnist-aa22, mnist-aa11") {
				t.Errorf("%q: found %v %s, error %v", ref, found, got.ID, err)
			}
		case err != nil || found != (want != "") || string(got.ID) != want:
			t.Errorf("%q: found %v %q, error %v; want %q", ref, found, got.ID, err, want)
		}
	}
	if got, _, _ := pickJob(jobs, "mnist", "carol"); got.ID != "mnist-bb33" {
		t.Errorf("the newest of others is mnist-bb33, not %s", got.ID)
	}
}

func TestJobsAreFoundOnTheBus(t *testing.T) {
	s := newTerminal(t)
	s.fill(t)
	publish(t, s.bus, event.OnceFact("fresh", event.FactSubmitted, "submitted", event.Submitted{Spec: train.Spec{Name: "new"}}))
	cases := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"whole id", []string{"wait", "mnist-77de"}, ExitOK, ""},
		{"beginning", []string{"wait", "mni"}, ExitOK, ""},
		{"name", []string{"wait", "mnist"}, ExitOK, ""},
		{"near miss", []string{"describe", "resnat"}, ExitError, `no job "resnat"` + "\n  fix: did you mean resnet?"},
		{"unknown to wait", []string{"wait", "mnist", "entirely-else"}, ExitUnknownJob, `no job "entirely-else"` + "\n  fix: `switchyard ps -A` lists the jobs"},
		{"unknown to cancel", []string{"cancel", "entirely-else"}, ExitError, `no job "entirely-else"`},
		{"no word for a subject", []string{"logs", "a b.*>"}, ExitError, `no job "a b.*>"`},
		{"stored, not taken up", []string{"wait", "--timeout", "1ms", "fresh"}, ExitUnfinished, "not ended in time"},
		{"stored, described", []string{"describe", "fresh"}, ExitOK, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			code, _, stderr := s.run(tc.args...)
			if code != tc.code || !strings.Contains(stderr, tc.want) {
				t.Fatalf("exit %d, %q; want %d, %q", code, stderr, tc.code, tc.want)
			}
		})
	}
}

func TestABusWithoutServicesIsTold(t *testing.T) {
	s := newTerminal(t)
	for _, bucket := range []string{event.BucketJobs} {
		kv, err := openBucket[train.Job](t.Context(), s.bus, bucket)
		if err != nil || kv == nil {
			t.Fatal(err)
		}
	}
	_, err := openBucket[train.Job](t.Context(), s.bus, "no_such_bucket")
	if err == nil || !strings.Contains(err.Error(), "no service of Switchyard has run") {
		t.Fatal(err)
	}
	code := Main([]string{"switchyard", "--nats", "nats://127.0.0.1:1", "ps"}, strings.NewReader(""), s.out, s.err)
	if code != ExitUnreachable {
		t.Fatalf("exit %d for a bus that is not there: %s", code, s.err)
	}
}
