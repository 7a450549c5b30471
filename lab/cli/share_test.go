package cli

import (
	"encoding/csv"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// throughputsFolder writes measurements on a GPU where two jobs of one kind do not feel each other, and a stream of
// two such jobs.
func throughputsFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"colocation-1gpu.csv": "gpu_type,model_a,batch_a,model_b,batch_b,isolated_a,isolated_b,colocated_a,colocated_b\n" +
			"toy,a,8,a,8,4,4,4,4\ntoy,a,8,a,16,4,3,4,1\ntoy,a,16,a,16,3,3,0,0\n",
		"isolated.csv":        "gpu_type,model,batch,scale_factor,steps_per_s_sum\ntoy,a,8,1,4\ntoy,a,16,1,3\n",
		"declared_memory.csv": "gpu_type,model,batch,memory_fraction\ntoy,a,8,0.4\ntoy,a,16,0.6\n",
		"one.csv":             "job,arrival_s,model,batch,solo_s\n0,0,a,8,100\n1,10,a,8,100\n",
		"two.csv":             "job,arrival_s,model,batch,solo_s\n0,0,a,8,50\n1,0,a,8,50\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSimulateShare(t *testing.T) {
	dir := throughputsFolder(t)
	args := []string{
		"share", "--throughputs", dir, "--gpu", "toy", "--gpus", "1", "--stream", filepath.Join(dir, "one.csv") + "," + filepath.Join(dir, "two.csv"),
		"--policy", "exclusive,interference", "--memory", "declared", "--seed", "3",
	}
	code, out, errs := simulateWith(t, append(args, "-o", "json")...)
	var got []map[string]any
	if err := json.Unmarshal([]byte(out), &got); code != exit.OK || err != nil {
		t.Fatalf("exit code %d, error %v: %s", code, err, errs)
	}
	keys := []string{
		"avg_jct_seconds", "co_locations", "evictions", "gpu", "makespan_seconds", "mean_slowdown", "oom_kills", "p99_jct_seconds", "policy", "stream",
	}
	want := []struct {
		policy, stream string
		average        float64
	}{{"exclusive", "one", 145}, {"exclusive", "two", 75}, {"interference", "one", 100}, {"interference", "two", 50}}
	if len(got) != len(want) {
		t.Fatalf("%d results: %s", len(got), out)
	}
	for i, w := range want {
		if !slices.Equal(slices.Sorted(maps.Keys(got[i])), keys) {
			t.Errorf("keys of %v, want %v", got[i], keys)
		}
		if got[i]["policy"] != w.policy || got[i]["stream"] != w.stream || got[i]["gpu"] != "toy" || got[i]["avg_jct_seconds"] != w.average {
			t.Errorf("got %v, want %+v", got[i], w)
		}
	}
	code, out, errs = simulateWith(t, append(args, "-o", "csv")...)
	if rows, err := csv.NewReader(strings.NewReader(out)).ReadAll(); code != exit.OK || err != nil || len(rows) != 5 || rows[3][3] != "100" {
		t.Errorf("exit code %d, error %v: %s%s", code, err, errs, out)
	}
	if code, out, errs = simulateWith(t, args...); code != exit.OK || strings.Count(out, "\n") != 5 {
		t.Errorf("exit code %d: %s%s", code, errs, out)
	}
}

func TestSimulateBatch(t *testing.T) {
	args := []string{"batch", "--throughputs", throughputsFolder(t), "--gpu", "toy"}
	code, out, errs := simulateWith(t, append(args, "-o", "json")...)
	var got []map[string]any
	if err := json.Unmarshal([]byte(out), &got); code != exit.OK || err != nil || len(got) != 1 {
		t.Fatalf("exit code %d, error %v: %s%s", code, err, errs, out)
	}
	// The best of the grid is 8 beside 8: two times 32 of 48 samples/s. 16 beside 16 needs more memory than there is,
	// and is not tried.
	for key, want := range map[string]any{
		"gpu": "toy", "model_a": "a", "model_b": "a", "cells": 4.0, "evaluations": 3.0, "oom_evaluations": 0.0, "relative_score": 1.0, "batch_a": 8.0, "batch_b": 8.0,
	} {
		if got[0][key] != want {
			t.Errorf("%s is %v, want %v", key, got[0][key], want)
		}
	}
	for format, lines := range map[string]int{"csv": 2, "table": 4} {
		if code, out, errs = simulateWith(t, append(args, "-o", format)...); code != exit.OK || strings.Count(out, "\n") != lines {
			t.Errorf("-o %s: exit code %d: %s%s", format, code, errs, out)
		}
	}
}

func TestSimulateShareUsage(t *testing.T) {
	dir := throughputsFolder(t)
	stream := filepath.Join(dir, "one.csv")
	for _, args := range [][]string{
		{"share"},
		{"share", "--throughputs", dir, "--gpu", "toy"},
		{"share", "--throughputs", dir, "--gpu", "other", "--stream", stream, "--policy", "oracle"},
		{"share", "--throughputs", dir, "--gpu", "toy", "--stream", stream, "--policy", "orakle"},
		{"share", "--throughputs", dir, "--gpu", "toy", "--stream", stream + "x", "--policy", "oracle"},
		{"share", "--throughputs", dir, "--gpu", "toy", "--stream", stream, "--policy", "oracle", "--gpus", "0"},
		{"share", "--throughputs", dir, "--gpu", "toy", "--stream", stream, "--policy", "oracle", "--memory", "some"},
		{"batch", "--gpu", "toy"},
		{"batch", "--throughputs", filepath.Dir(dir), "--gpu", "toy"},
	} {
		if code, _, errs := simulateWith(t, args...); code != exit.Usage || errs == "" {
			t.Errorf("%v: exit code %d, said %q", args, code, errs)
		}
	}
}
