package cli

import (
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// Commands that published data is for name the program that has them, whatever their flags.
func TestCommandsOfTheLaboratory(t *testing.T) {
	for _, args := range [][]string{
		{"simulate", "--traces", "pollux/traces", "--workload", "w.csv", "--policy", "pollux"},
		{"simulate", "compare", "--traces", "pollux/traces"},
		{"simulate", "share", "--throughputs", "x"},
		{"workload", "generate", "--jobs", "4"},
		{"net", "simulate", "--topology", "fattree:4"},
	} {
		if code, out, errs := clitest.Execute(Commands(), "", args...); code != exit.Usage || out != "" || !strings.Contains(errs, "switchyard-lab") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, out, errs)
		}
	}
}
