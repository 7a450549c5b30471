package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// answers is a program that prints help as cobra does.
const answers = `#!/bin/sh
case "$*" in
"--help") printf 'Usage:\n  yard [command]\n\nServices:\n  up    Run it\n\nThe network:\n  net   The network\n  help  Help\n\nFlags:\n  -o, --output string\n' ;;
"up --help") printf 'Flags:\n      --port int\n' ;;
"net --help") printf 'Available Commands:\n  plan   Choose paths\n' ;;
"net plan --help") printf 'Flags:\n      --alpha int\n' ;;
esac
`

func TestCommands(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"switchyard", "switchyard-lab", "switchyard-server"} {
		write("bin/"+name, answers, 0o755)
	}
	write("docs/configuration.md", "| `--quota` | `SWITCHYARD_QUOTA` |\n", 0o644)
	write("README.md", "Run `switchyard up --port 0 -o json`, set `--quota ann=4` or\n\n"+
		"```sh\nexport A=1 && switchyard net plan \\\n    --alpha 2 | jq .   # --beta\nswitchyard up -- python --fast\n```\n", 0o644)
	write("docs/a.md", "Run `switchyard down`, `switchyard up --prot 0`, set `--qouta ann=4`.\n\n"+
		"    bin/switchyard-lab net plan --beta 1 && switchyard net\n", 0o644)
	got, err := checkCommands(t.Context(), root, filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(root, "docs/a.md")
	want := []string{
		page + ": no command has the flag --qouta",
		page + ": switchyard has no command down",
		page + ": switchyard up has no flag --prot",
		page + ": switchyard-lab net plan has no flag --beta",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if _, err := checkCommands(t.Context(), root, filepath.Join(root, "none")); err == nil {
		t.Error("checkCommands found programs in a folder that does not exist")
	}
}
