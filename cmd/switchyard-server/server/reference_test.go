package server

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/manual"
	"github.com/switchyard-dl/switchyard/libs/settings"
)

func TestTheConfigurationReferenceIsCurrent(t *testing.T) {
	have, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil || string(have) != settings.Reference() {
		t.Fatalf("docs/configuration.md is stale: run `make generate` (%v)", err)
	}
}

func TestTheReferenceOfTheCommandsIsCurrent(t *testing.T) {
	page, err := os.ReadFile("../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, have, _ := strings.Cut(string(page), manual.ServerTitle)
	var out bytes.Buffer
	if code := Main([]string{"switchyard-server", "manual"}, &out, &out); code != 0 || out.String() != manual.ServerTitle+have {
		t.Fatalf("docs/cli.md is stale: run `make generate` (exit %d)", code)
	}
}
