package main

import (
	"io"
	"strings"
	"testing"
)

func lookup(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

func TestWhichProcessThisIs(t *testing.T) {
	tests := map[string]struct {
		env                      map[string]string
		rank, processes, workers int
	}{
		"alone":                   {map[string]string{}, 0, 1, 1},
		"no devices":              {map[string]string{"NUM_GPUS": "0"}, 0, 1, 1},
		"one process, three":      {map[string]string{"NUM_GPUS": "3", "WORLD_SIZE": "1", "NUM_NODES": "1"}, 0, 1, 3},
		"a process per device":    {map[string]string{"NUM_GPUS": "4", "WORLD_SIZE": "4", "RANK": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, 2, 4, 1},
		"a process per node":      {map[string]string{"NUM_GPUS": "4", "WORLD_SIZE": "2", "NODE_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, 1, 2, 2},
		"RANK before NODE_RANK":   {map[string]string{"WORLD_SIZE": "2", "RANK": "1", "NODE_RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, 1, 2, 1},
		"one process with a RANK": {map[string]string{"NUM_GPUS": "1", "WORLD_SIZE": "1", "RANK": "0"}, 0, 1, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := readSettings(nil, lookup(test.env), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if s.rank != test.rank || s.processes != test.processes || s.workers != test.workers {
				t.Errorf("rank %d of %d with %d workers, want %d of %d with %d",
					s.rank, s.processes, s.workers, test.rank, test.processes, test.workers)
			}
		})
	}
}

func TestWrongSettingsAreRefusedInWords(t *testing.T) {
	tests := map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"no rank":            {env: map[string]string{"WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, want: "neither RANK nor NODE_RANK"},
		"no master":          {env: map[string]string{"WORLD_SIZE": "2", "RANK": "0"}, want: "where to meet"},
		"rank too high":      {env: map[string]string{"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, want: "rank 2 does not exist"},
		"uneven devices":     {env: map[string]string{"WORLD_SIZE": "2", "RANK": "0", "NUM_GPUS": "3", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, want: "evenly"},
		"not a number":       {env: map[string]string{"BATCH_SIZE": "many"}, want: `BATCH_SIZE="many"`},
		"negative":           {env: map[string]string{"EPOCHS_TO_BE_DONE": "-1"}, want: "EPOCHS_TO_BE_DONE"},
		"empty batch":        {args: []string{"-batch-size", "0"}, want: "at least 1"},
		"no hidden units":    {args: []string{"-hidden", "0"}, want: "hidden"},
		"another job's path": {env: map[string]string{"JOB_UUID": "../other"}, want: "not a plain name"},
		"parent directory":   {env: map[string]string{"JOB_UUID": ".."}, want: "not a plain name"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := readSettings(test.args, lookup(test.env), io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestFlagsPrevailOverTheEnvironment(t *testing.T) {
	s, err := readSettings([]string{"-epochs", "7"},
		lookup(map[string]string{"EPOCHS_TO_BE_DONE": "3", "TRAINING_SET_SIZE": "123", "SWITCHYARD_SNAPSHOTS_DIR": "/s", "JOB_UUID": "u"}), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if s.epochs != 7 || s.samples != 123 || s.snapshots != "/s/u" {
		t.Errorf("%d epochs of %d samples into %s", s.epochs, s.samples, s.snapshots)
	}
}
