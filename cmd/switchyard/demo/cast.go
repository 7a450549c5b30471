package demo

import (
	"os/exec"
	"path/filepath"

	examples "github.com/switchyard-dl/switchyard/examples/python"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// role is one job of the demo, and the moment of its submission.
type role struct {
	id   train.JobID
	spec train.Spec
	// after is the job that must have finished epochs first; empty: at once.
	after  train.JobID
	epochs int
}

// demoCast returns the script. An elastic job fills the machine. A small job arrives and the planner shrinks the
// first; after the next arrival the first has to wait. Then an urgent job that needs the whole machine preempts all
// others, which resume from their checkpoints.
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
	vision := goJob("vision", 60, 4000)
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

// unpackPython writes the trainers into the demo's folder and returns the path of python3. Without one it returns "",
// and the Go trainer plays all parts.
func unpackPython(dir string) (string, error) {
	if err := installation.Unpack(filepath.Join(dir, "examples"), examples.Files); err != nil {
		return "", err
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", nil //nolint:nilerr // a machine without Python is served too
	}
	return python, nil
}
