package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTheClientIsSmall looks at everything that the command links, in both builds: with cgo and without.
func TestTheClientIsSmall(t *testing.T) {
	const own = "github.com/switchyard-dl/switchyard/"
	forbidden := []string{
		"k8s.io/", "github.com/nats-io/nats-server/", "github.com/NVIDIA/", "github.com/influxdata/", "github.com/prometheus/", "gonum.org/v1/plot",
		own + "libs/busserver", own + "libs/run", own + "cmd/switchyard-server",
	}
	// Pure cores with which a command computes what a service computes, and what these need.
	cores := []string{
		"energy/grid", "energy/report", "energy/tariff",
		"experiments/conduct", "experiments/file", "experiments/pipeline", "experiments/profile", "experiments/search",
		"planner/decision", "planner/history", "planner/plan", "planner/probe", "planner/records",
		"planner/share", "planner/sim", "planner/simrun", "planner/whatif",
		"web/api", "web/explain", "web/index", "web/view",
	}
	for _, cgo := range []string{"0", "1"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{if .Standard}}std{{else if .CgoFiles}}cgo{{end}}", ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(lines) < 50 {
			t.Fatalf("only %d packages: is this the whole command?", len(lines))
		}
		for _, line := range lines {
			pkg, kind, _ := strings.Cut(line, " ")
			if service, found := strings.CutPrefix(pkg, own+"services/"); found && !slices.ContainsFunc(cores, func(core string) bool {
				return service == core || strings.HasPrefix(service, core+"/")
			}) {
				t.Errorf("the command links %s, which is no core that a command computes with", pkg)
			}
			if kind == "cgo" {
				t.Errorf("%s needs cgo", pkg)
			}
			for _, prefix := range forbidden {
				if strings.HasPrefix(pkg, prefix) {
					t.Errorf("the command links %s: %s belongs to switchyard-server", pkg, prefix)
				}
			}
		}
	}
}

// TestTheServerIsFound starts the command from folders with and without a server.
func TestTheServerIsFound(t *testing.T) {
	dir := t.TempDir()
	client := filepath.Join(dir, "bin", "switchyard")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", client, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	script := func(folder, says string) {
		path := filepath.Join(dir, folder, "switchyard-server")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+says+" \"$@\"\nexit 7\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func() (string, int) {
		cmd := exec.CommandContext(t.Context(), client, "--nats", "nats://h:1", "up", "--policy", "fifo", "--help")
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "path"))
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := run(); code != 1 || !strings.Contains(out, "switchyard-server is neither beside this program nor in PATH") {
		t.Errorf("without a server: exit %d, %q", code, out)
	}
	script("path", "from PATH")
	if out, code := run(); code != 7 || out != "from PATH up --nats nats://h:1 --policy fifo --help\n" {
		t.Errorf("with one in PATH: exit %d, %q", code, out)
	}
	script("bin", "beside")
	if out, code := run(); code != 7 || out != "beside up --nats nats://h:1 --policy fifo --help\n" {
		t.Errorf("with one beside the command: exit %d, %q", code, out)
	}
}
