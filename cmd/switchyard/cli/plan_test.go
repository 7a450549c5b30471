package cli

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/event"
)

func TestRubbishInThePlaceOfThePlan(t *testing.T) {
	s := clitest.New(t, Commands()...)
	s.Fill(t)
	raw, err := nats.Connect(s.Bus.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	subject := event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1}
	if _, err := raw.RequestWithContext(t.Context(), subject.String(), []byte("garbage{")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"describe", "resnet-4f2a"}, {"ps", "-A"}} {
		code, out, err := s.Run(args...)
		if code != exit.OK || !strings.Contains(out, "resnet-4f2a") {
			t.Errorf("%s: %d %s %s", args, code, out, err)
		}
	}
}
