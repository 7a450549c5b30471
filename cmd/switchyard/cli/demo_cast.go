package cli

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	examples "github.com/switchyard-dl/switchyard/examples/python"
	library "github.com/switchyard-dl/switchyard/libs/python"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// role is one job of the demo and the moment at which it is submitted.
type role struct {
	id   train.JobID
	spec train.Spec
	// after is the job that must have finished epochs first; empty: at once.
	after  train.JobID
	epochs int
}

// demoCast is the play: an elastic job fills the machine; a small one arrives and it is shrunk for it, with the next one it has to wait; then an urgent
// job that needs the whole machine preempts everybody, and they resume from their checkpoints.
func demoCast(dir, trainer string) ([]role, error) {
	python, err := unpackPython(dir)
	if err != nil {
		return nil, err
	}
	goJob := func(name string, epochs, samples int, args ...string) train.Spec {
		return train.Spec{
			Name: name, Command: append([]string{trainer}, args...), BatchSize: 64, TrainingSetSize: samples, MaxEpochs: epochs, MaxDevices: 1,
		}
	}
	vision := goJob("vision", 24, 4000)
	vision.MaxDevices, vision.Strategy = 2, train.StrategyAllReduce
	urgent := goJob("urgent", 8, 4000, "-hidden", "320")
	urgent.MinDevices, urgent.MaxDevices, urgent.Strategy, urgent.Launch = 2, 2, train.StrategyAllReduce, train.LaunchPerDevice
	priority := 90
	urgent.Priority = &priority
	pyJob := func(name, script string, epochs int, args ...string) train.Spec {
		if python == "" {
			return goJob(name, epochs, 2500, args...)
		}
		return train.Spec{
			Name: name, Command: []string{python, filepath.Join(dir, "examples", script)}, BatchSize: 32, TrainingSetSize: 400, MaxEpochs: epochs, MaxDevices: 1,
		}
	}
	ranking := goJob("ranking", 12, 3000, "-hidden", "256")
	ranking.MaxDevices, ranking.Strategy = 2, train.StrategyAllReduce
	return []role{
		{id: "vision", spec: vision},
		{id: "speech", spec: pyJob("speech", "train_mlp.py", 16), after: "vision", epochs: 2},
		{id: "recsys", spec: pyJob("recsys", "train_kube.py", 12), after: "speech", epochs: 1},
		{id: "urgent", spec: urgent, after: "speech", epochs: 3},
		{id: "tabular", spec: goJob("tabular", 10, 3000, "-hidden", "192"), after: "speech", epochs: 2},
		{id: "ranking", spec: ranking, after: "urgent", epochs: 2},
	}, nil
}

// unpackPython writes library and trainers into the demo's folder; without a python3 the Go trainer plays all parts.
func unpackPython(dir string) (string, error) {
	for target, files := range map[string]embed.FS{"python": library.Files, "examples": examples.Files} {
		if err := unpack(filepath.Join(dir, target), files); err != nil {
			return "", err
		}
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", nil //nolint:nilerr // a machine without Python is served too
	}
	return python, nil
}

func unpack(dir string, files embed.FS) error {
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(path))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644) //nolint:gosec // code that jobs of any user read
	})
	if err != nil {
		return fmt.Errorf("unpack into %s: %w", dir, err)
	}
	return nil
}
