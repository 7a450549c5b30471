package jobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/clitest"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestACommandIsCompletedAsTyped(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	environ := []string{"PATH=/venv/bin:/usr/bin", "CONDA_PREFIX=/c", "LC_ALL=C", "TOKEN=secret", "HOME=/home/ann", "LANG=en"}
	spec := train.Spec{Command: []string{"python3", "src/train.py", "--lr", "0.1"}, Env: map[string]string{"LANG": "de", "A": "1"}}
	if err := asTyped(&spec, environ); err != nil {
		t.Fatal(err)
	}
	want := train.Spec{
		Name: "train", Command: spec.Command, WorkDir: dir,
		Env: map[string]string{"PATH": "/venv/bin:/usr/bin", "CONDA_PREFIX": "/c", "LC_ALL": "C", "LANG": "de", "A": "1"},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Error(diff)
	}
	inImage := train.Spec{Command: []string{"train"}, Image: "torch"}
	if err := asTyped(&inImage, environ); err != nil || inImage.WorkDir != "" || inImage.Env != nil || inImage.Name != "train" {
		t.Errorf("%+v, error %v", inImage, err)
	}
}

func TestNamesOfCommands(t *testing.T) {
	for want, command := range map[string][]string{
		"train":                 {"python3", "-u", "/a/train.py", "x.sh"},
		"digits":                {"python3", "-m", "digits", "-x"},
		"sleep":                 {"/bin/sleep", "5"},
		"job.sh":                {"./job.sh"}, // the program itself keeps its name
		"":                      nil,
		strings.Repeat("x", 63): {strings.Repeat("x", 70)},
	} {
		if got := nameOf(command); got != want {
			t.Errorf("%q is named %q, want %q", command, got, want)
		}
	}
}

func TestEnvironmentFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vars")
	if err := os.WriteFile(path, []byte("# tokens\n\nA=1\nB=x=y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := clitest.Execute(Commands(), "", "submit", "--print-event", "--env-file", path, "-e", "A=2", "--", "x")
	for _, want := range []string{`"A": "2"`, `"B": "x=y"`, `"name": "x"`} {
		if code != exit.OK || !strings.Contains(out, want) {
			t.Errorf("exit %d, no %s in %s%s", code, want, out, errs)
		}
	}
	if err := os.WriteFile(path, []byte("A=1\nB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs = clitest.Execute(Commands(), "", "submit", "--env-file", path, "--", "x"); code != exit.Usage || !strings.Contains(errs, "line 2: want NAME=VALUE") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
