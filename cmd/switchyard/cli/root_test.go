package cli

import (
	"bytes"
	"strings"
	"testing"
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
