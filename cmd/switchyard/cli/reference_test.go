package cli

import (
	"os"
	"strings"
	"testing"
)

func TestTheConfigurationReferenceIsCurrent(t *testing.T) {
	var b strings.Builder
	if err := writeReference(&b); err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil || string(have) != b.String() {
		t.Fatalf("docs/configuration.md is stale: run `make generate` (%v)", err)
	}
}
