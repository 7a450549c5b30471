package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/test/programs"
)

// Everything is tried on a machine whose driver is the stand-in, by the program that `make gpu` runs: the product, its
// agent, NVIDIA's Go binding and load.c call the libraries that standin/gpu.c makes.
func TestOnTheStandIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gpus := filepath.Join(dir, "gpus")
	build(t, dir)
	if err := os.WriteFile(gpus, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// nvidia-smi is one more stand-in.
	smi := "#!/bin/sh\nprintf 'GPU-1\\nGPU-2\\n'\n"
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(smi), 0o700); err != nil {
		t.Fatal(err)
	}
	mps, err := filepath.Abs("../../services/nodeagent/mps/testdata")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "gpu"), "-bin", dir, "-out", filepath.Join(dir, "page"), "-load", "2s")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "STANDIN_GPUS="+gpus, "STANDIN_GPU_COUNT=2", "SWITCHYARD_JOB_ENVIRONMENT=LD_LIBRARY_PATH,STANDIN_GPUS",
		"PATH="+dir+":"+mps+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	page, err := os.ReadFile(filepath.Join(dir, "page", "stand-in.md"))
	if err != nil {
		t.Fatal(err)
	}
	// What needs a framework, an engine or partitions is not tried here; all else is.
	untried := map[string]bool{"MIG": true, "container": true, "DDP": true}
	for _, g := range groups() {
		for _, c := range g.checks {
			want := verdictRight
			if untried[c.what] && !rowSays(string(page), c.what, verdictRight) {
				want = verdictNotTried
			}
			if !rowSays(string(page), c.what, want) {
				t.Errorf("%s: want %q in\n%s", c.what, want, page)
			}
		}
	}
	if !rowSays(string(page), "put back", verdictRight) {
		t.Errorf("not put back:\n%s", page)
	}
}

func rowSays(page, what, verdict string) bool {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| "+what+" |") {
			return strings.HasSuffix(strings.TrimSpace(line), "| "+verdict+" |")
		}
	}
	return false
}

// build makes the program, the product, and the stand-in under the names of the driver's libraries.
func build(t *testing.T, dir string) {
	t.Helper()
	header, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml/pkg/nvml").Output()
	if err != nil {
		t.Fatal(err)
	}
	gcc := exec.Command("gcc", "-O1", "-w", "-fPIC", "-shared", "-I", strings.TrimSpace(string(header)), "-o", filepath.Join(dir, "libnvidia-ml.so.1"), "standin/gpu.c")
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", gcc.Args, err, out)
	}
	if err := programs.Build(dir, append(programs.All(), "test/gpu")...); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "gotrainer"), filepath.Join(dir, "switchyard-trainer")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(dir, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
}

// Where there is no GPU, and where no row was tried, the run fails with a sentence that says so.
func TestWithoutAGPUNothingIsGreen(t *testing.T) {
	s := settings{out: t.TempDir(), load: time.Second, only: "nothing has this name", used: true}
	if err := run(t.Context(), s); err == nil || !errors.Is(err, errNoGPU) && err.Error() != "nothing was tested" {
		t.Errorf("error %v", err)
	}
}
