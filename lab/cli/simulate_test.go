package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// traceFolder writes an application whose step takes 0.1 s on one device and 0.06 s on two, and a workload of three
// jobs.
func traceFolder(t *testing.T) (traces, workload string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	placements := "placement,local_bsz,step_time,sync_time\n1,4,0.1,0\n1,12,0.1,0\n2,4,0.06,0.01\n2,12,0.06,0.01\n"
	for _, suffix := range []string{"", "-fast"} {
		write("traces/bert/placements"+suffix+".csv", placements)
		write("traces/bert/scalability"+suffix+".csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,6,4,0.05,0.01\n")
	}
	for _, batch := range []int{12, 384} {
		rows := "progress,iteration,metric,grad_sqr,grad_var\n"
		for epoch := 1; epoch <= 2; epoch++ {
			rows += fmt.Sprintf("%d,%d,0,1,1\n", 1000*epoch, 1000*epoch)
		}
		write(fmt.Sprintf("traces/bert/validation-%d.csv", batch), rows)
	}
	workload = write("small.csv", "name,time,application,num_replicas,batch_size\na,0,bert,1,12\nb,10,bert,2,12\nc,20,bert,1,12\n")
	return filepath.Join(dir, "traces"), workload
}

func simulateWith(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return call(t, append([]string{"simulate"}, args...)...)
}

func parse[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}

func TestSimulateJSON(t *testing.T) {
	traces, workload := traceFolder(t)
	timeline := filepath.Join(t.TempDir(), "timeline.csv")
	code, out, errs := simulateWith(t, "--traces", traces, "--workload", workload+","+workload+"+"+workload, "--policy", "fifo,tiresias",
		"--cluster", "nodes=1,gpus=2", "-o", "json", "--timeline", timeline)
	if code != exit.OK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var runs []map[string]any
	if err := json.Unmarshal([]byte(out), &runs); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	want := []string{
		"avg_jct_seconds", "completed", "decide_ms_p50", "decide_ms_p99", "gpu_utilisation", "jcts", "jobs", "makespan_seconds", "p50_jct_seconds",
		"p99_jct_seconds", "policy", "restarts", "workload", "worst_finish_time_fairness",
	}
	var names []string
	for _, r := range runs {
		if keys := slices.Sorted(maps.Keys(r)); !slices.Equal(keys, want) {
			t.Errorf("fields %v, want %v", keys, want)
		}
		names = append(names, fmt.Sprint(r["policy"], " ", r["workload"], " ", r["completed"]))
	}
	if want := []string{"fifo small 3", "fifo small+small 6", "tiresias small 3", "tiresias small+small 6"}; !slices.Equal(names, want) {
		t.Errorf("runs %v, want %v", names, want)
	}
	// a is placed at 60 s and ends at 290 s; b, on both devices, runs from 300 to 450 s; c waits in line behind it,
	// and runs from 480 to 710 s.
	jcts := runs[0]["jcts"].(map[string]any)
	if jcts["a"] != 290.0 || jcts["b"] != 440.0 || jcts["c"] != 710.0-20 {
		t.Errorf("completion times under fifo: %v", jcts)
	}
	rows, err := csv.NewReader(strings.NewReader(readFile(t, timeline))).ReadAll()
	if err != nil || len(rows) < 10 {
		t.Fatalf("timeline of %d rows: %v", len(rows), err)
	}
	if got := strings.Join(rows[1], " "); got != "fifo small 60 a 1 n00000:1 Placed" {
		t.Errorf("the timeline begins with %q", got)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestSimulateRefuses(t *testing.T) {
	traces, workload := traceFolder(t)
	for name, c := range map[string]struct {
		change map[string]string
		says   string
	}{
		"a policy that does not exist": {map[string]string{"--policy": "tiresas"}, "did you mean tiresias?"},
		"a cluster without GPUs":       {map[string]string{"--cluster": "nodes=3"}, "want nodes=N,gpus=M"},
		"a type without step times":    {map[string]string{"--cluster": "nodes=3,gpus=1,type=slow"}, "types in these traces: fast"},
		"no traces":                    {map[string]string{"--traces": workload + "x"}, "no such file"},
		"no workload":                  {map[string]string{"--workload": "nowhere.csv"}, "no such file"},
		"too much interference":        {map[string]string{"--interference": "1"}, "less than 1"},
		"an interval of nothing":       {map[string]string{"--interval": "0s"}, "1s or more"},
		"a cluster beyond memory":      {map[string]string{"--cluster": "nodes=99999999,gpus=99999999"}, "at most 1000000 GPUs"},
		"a workload without a name":    {map[string]string{"--workload": workload + "+"}, "a name of a file is empty"},
		"a timeline into nowhere":      {map[string]string{"--timeline": filepath.Join(traces, "nowhere", "t.csv")}, "there is no folder"},
		"a timeline that is a folder":  {map[string]string{"--timeline": traces}, "that is a folder"},
		"an output that is none":       {map[string]string{"-o": "xml"}, "want table, json or csv"},
	} {
		t.Run(name, func(t *testing.T) {
			flags := map[string]string{"--traces": traces, "--workload": workload, "--policy": "fifo"}
			maps.Copy(flags, c.change)
			var args []string
			for _, flag := range slices.Sorted(maps.Keys(flags)) {
				args = append(args, flag, flags[flag])
			}
			if code, out, errs := simulateWith(t, args...); code != exit.Usage || out != "" || !strings.Contains(errs, c.says) {
				t.Errorf("exit code %d, output %q, message %q; want %d and %q", code, out, errs, exit.Usage, c.says)
			}
		})
	}
}

func TestSimulateOnTypedClusterAndCompare(t *testing.T) {
	traces, workload := traceFolder(t)
	dir := filepath.Join(t.TempDir(), "pictures")
	code, out, errs := simulateWith(t, "compare", "--traces", traces, "--workload", workload, "--policy", "fifo,drf", "--cluster", "nodes=1,gpus=2,type=fast", "--out", dir)
	if code != exit.OK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, words := range []string{"| fifo | 3 of 3 |", "| drf | 3 of 3 |", "| lower bound |"} {
		if !strings.Contains(out, words) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
	options := []string{"compare", "--traces", traces, "--workload", workload, "--policy", "fifo,drf", "--cluster", "nodes=1,gpus=2,type=fast", "-o"}
	_, out, _ = simulateWith(t, append(options, "json")...)
	if all := parse[[]compared](t, out); len(all) != 2 || all[1].Policy != "drf" || all[1].Completed != 3 || !(all[1].LowerBoundSeconds > 0 && all[1].LowerBoundSeconds <= all[1].AvgJCTSeconds) {
		t.Errorf("%s", out)
	}
	_, out, _ = simulateWith(t, append(options, "csv")...)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 || !strings.HasSuffix(lines[0], ",lower_bound_seconds") || strings.Count(lines[2], ",") != strings.Count(lines[0], ",") {
		t.Errorf("%s", out)
	}
	for _, name := range []string{"comparison.md", "jct-small.svg", "jct-small.png", "devices-small.svg", "jobs-small.png"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
