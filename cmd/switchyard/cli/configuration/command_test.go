package configuration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/installation"
)

// run runs the command line, and gives its exit code and outputs.
func run(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var out, told strings.Builder
	a := &console.Console{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &told}
	root := &cobra.Command{Use: "switchyard"}
	root.AddCommand(Command(a))
	return a.Run(root, args), out.String(), told.String()
}

func TestAFileIsChecked(t *testing.T) {
	t.Setenv("SWITCHYARD_DATA_DIR", t.TempDir())
	good, bad := filepath.Join(t.TempDir(), "a.yaml"), filepath.Join(t.TempDir(), "b.yaml")
	for path, text := range map[string]string{good: "planner: {policy: fifo}\n", bad: "planner:\n  polisy: fifo\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, told := run(t, "config", "check", good); code != exit.OK || !strings.Contains(out, "nothing wrong, settings given: 1") {
		t.Errorf("%d %q %q", code, out, told)
	}
	t.Setenv("SWITCHYARD_CONFIG", bad)
	if code, _, told := run(t, "config", "check"); code != exit.Usage || !strings.Contains(told, "line 2: planner.polisy: no such setting (did you mean policy?)") {
		t.Errorf("%d %q", code, told)
	}
	t.Setenv("SWITCHYARD_CONFIG", "/nowhere/at/all.yaml")
	if code, _, told := run(t, "config", "check"); code != exit.Usage || !strings.Contains(told, "no such file") {
		t.Errorf("%d %q", code, told)
	}
}

func TestEachValueIsShownWithItsSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte("energy: {influx_token: hush}\nnodeagent: {cpu_slots: 3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SWITCHYARD_CONFIG", path)
	t.Setenv("SWITCHYARD_LOG_LEVEL", "debug")
	t.Setenv("SWITCHYARD_NATS", "nats://elsewhere:1") // for commands, not for services
	code, out, told := run(t, "config", "show", "--changed", "--policy=fifo", "-o", "json")
	var shown struct {
		File     string `json:"file"`
		Settings []row  `json:"settings"`
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != exit.OK || shown.File != path {
		t.Fatalf("%d %q %q", code, out, told)
	}
	got := map[string]string{}
	for _, r := range shown.Settings {
		got[r.Key] = r.Value + " " + string(r.Source)
	}
	for key, want := range map[string]string{
		"planner.policy": "fifo flag", "process.log_level": "debug environment", "nodeagent.cpu_slots": "3 file", "energy.influx_token": "(set) file",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if len(got) != 4 || strings.Contains(out, "hush") {
		t.Errorf("shown: %s", out)
	}
	if code, _, told := run(t, "config", "show", "--plan-interval=1s"); code != exit.Usage || !strings.Contains(told, "set planner.plan_interval in switchyard.yaml") {
		t.Errorf("%d %q", code, told)
	}
	if code, out, _ := run(t, "config", "schema"); code != exit.OK || !json.Valid([]byte(out)) {
		t.Errorf("%d %q", code, out)
	}
}

// Without FILE, the file of the `switchyard up` that commands reach is read, wherever its data folder is.
func TestTheFileOfTheRunningServerIsRead(t *testing.T) {
	dir, context := t.TempDir(), filepath.Join(t.TempDir(), "context.json")
	for _, name := range []string{"SWITCHYARD_DATA_DIR", "SWITCHYARD_CONFIG", "SWITCHYARD_NATS"} {
		t.Setenv(name, "")
	}
	t.Setenv("SWITCHYARD_CONTEXT", context)
	if err := installation.WriteContext(context, installation.Context{NATS: installation.DefaultURL, DataDir: dir}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "switchyard.yaml")
	if err := os.WriteFile(file, []byte("planner: {polisy: fifo}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"check", "show"} {
		if code, _, told := run(t, "config", command); code != exit.Usage || !strings.Contains(told, file+":\nline 1: planner.polisy") {
			t.Errorf("config %s: %d %q", command, code, told)
		}
	}
	if err := os.WriteFile(file, []byte("planner: {policy: fifo}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, told := run(t, "config", "show", "--changed"); code != exit.OK || !strings.Contains(out, "planner.policy  fifo") || !strings.Contains(out, dir) {
		t.Errorf("%d %q %q", code, out, told)
	}
}
