package server

import (
	"os"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/settings"
)

func TestTheConfigurationReferenceIsCurrent(t *testing.T) {
	have, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil || string(have) != settings.Reference() {
		t.Fatalf("docs/configuration.md is stale: run `make generate` (%v)", err)
	}
}
