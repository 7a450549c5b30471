package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// TestHelpGroupsAllCommands: cobra lists a command without a group apart, as an additional one.
func TestHelpGroupsAllCommands(t *testing.T) {
	var out bytes.Buffer
	if code := Main([]string{"switchyard", "--help"}, nil, &out, &out); code != 0 {
		t.Fatalf("exit %d: %s", code, out.String())
	}
	if help := out.String(); strings.Contains(help, "Additional Commands:") || !strings.Contains(help, "\nChange jobs:\n  cancel ") {
		t.Errorf("help:\n%s", help)
	}
}

// A script with a typo fails: it does not go on after the help of a group.
func TestAGroupRefusesWordsThatItDoesNotHave(t *testing.T) {
	run := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := Main(append([]string{"switchyard"}, args...), nil, &out, &out)
		return code, out.String()
	}
	clitest.RefuseUnknownWords(t, newRoot(&console.Console{}, nil), run)
	if _, said := run("config", "-o", "json", "chekc"); said != "switchyard: unknown command \"chekc\" for \"switchyard config\"\n  fix: did you mean check?\n" {
		t.Error(said)
	}
	for _, args := range [][]string{{"config"}, {"node", "-o", "json"}, {"config", "chekc", "--help"}, {"completion"}} {
		if code, said := run(args...); code != exit.OK || !strings.Contains(said, "Usage:") {
			t.Errorf("%v: exit %d, %s", args, code, said)
		}
	}
}

// The client refuses a wrong command line before it asks the bus, with the exit code of a usage error.
func TestWrongValuesOfFlagsAreUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"events --audit --since -5h":               "--since -5h0m0s: want a time that has passed",
		"simulate --from-bus --since -1h":          "--since -1h0m0s: want a time that has passed",
		"submit --estimated-hours NaN -- true":     "--estimated-hours NaN: want a finite number",
		"submit --stop-loss-decrease +Inf -- true": "--stop-loss-decrease +Inf: want a finite number",
		"tune run --id a+b " + digits + " --wait":  `--id: job id "a+b"`,
		"tune run --print-event --id .. " + digits: `--id: job id ".."`,
	} {
		var out bytes.Buffer
		args := append([]string{"switchyard", "--nats", "nats://127.0.0.1:1"}, strings.Fields(line)...)
		if code := Main(args, nil, &out, &out); code != exit.Usage || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit %d, %s", line, code, out.String())
		}
	}
}

const digits = "../../../examples/experiments/digits.yaml"
