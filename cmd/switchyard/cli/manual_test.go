package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/manual"
)

func TestTheReferenceOfTheCommandsIsCurrent(t *testing.T) {
	page, err := os.ReadFile("../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	have, _, _ := strings.Cut(string(page), manual.ServerTitle)
	var out bytes.Buffer
	code := Main([]string{"switchyard", "manual"}, nil, &out, &out)
	if diff := cmp.Diff(have, out.String()); code != 0 || diff != "" {
		t.Fatalf("docs/cli.md is stale: run `make generate` (exit %d)\n%s", code, diff)
	}
}
