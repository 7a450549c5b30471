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
