package cli

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestJobsAreFoundOnTheBus(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	clitest.Publish(t, s.Bus, event.OnceFact("fresh", event.FactSubmitted, "submitted", event.Submitted{Spec: train.Spec{Name: "new"}}))
	cases := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"whole id", []string{"wait", "mnist-77de"}, exit.OK, ""},
		{"beginning", []string{"wait", "mni"}, exit.OK, ""},
		{"name", []string{"wait", "mnist"}, exit.OK, ""},
		{"near miss", []string{"describe", "resnat"}, exit.Failed, `no job "resnat"` + "\n  fix: did you mean resnet?"},
		{"unknown to wait", []string{"wait", "mnist", "entirely-else"}, exit.UnknownJob, `no job "entirely-else"` + "\n  fix: `switchyard ps -A` lists the jobs"},
		{"unknown to cancel", []string{"cancel", "entirely-else"}, exit.Failed, `no job "entirely-else"`},
		{"no word for a subject", []string{"logs", "a b.*>"}, exit.Failed, `no job "a b.*>"`},
		{"nothing", []string{"cancel", ""}, exit.Failed, `no job ""`},
		{"nothing to wait", []string{"wait", ".."}, exit.UnknownJob, `no job ".."`},
		{"stored, not taken up", []string{"wait", "--timeout", "1ms", "fresh"}, exit.Unfinished, "not ended in time"},
		{"stored, described", []string{"describe", "fresh"}, exit.OK, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			code, _, stderr := s.Run(tc.args...)
			if code != tc.code || !strings.Contains(stderr, tc.want) {
				t.Fatalf("exit %d, %q; want %d, %q", code, stderr, tc.code, tc.want)
			}
		})
	}
}

func TestABusWithoutServicesIsTold(t *testing.T) {
	s := clitest.New(t, Commands()...)
	if kv, err := console.OpenBucket(t.Context(), s.Bus, contract.Jobs); err != nil || kv == nil {
		t.Fatal(err)
	}
	_, err := console.OpenBucket[train.Job](t.Context(), s.Bus, "no_such_bucket")
	if err == nil || !strings.Contains(err.Error(), "has no bucket no_such_bucket, although services of Switchyard have run") {
		t.Fatal(err)
	}
	code, _, stderr := clitest.Execute(Commands(), "", "--nats", bustest.Start(t).URL(), "node", "list")
	if !strings.Contains(stderr, "no service of Switchyard has run") {
		t.Errorf("exit %d for a bus without anything: %s", code, stderr)
	}
	code, _, stderr = clitest.Execute(Commands(), "", "--nats", "nats://127.0.0.1:1", "ps")
	if code != exit.Unreachable {
		t.Fatalf("exit %d for a bus that is not there: %s", code, stderr)
	}
}
