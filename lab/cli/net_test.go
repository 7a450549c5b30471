package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// call runs a whole command line.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = Main(append([]string{"switchyard-lab"}, args...), strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func TestNetSimulate(t *testing.T) {
	args := []string{"net", "simulate", "--topology", "fattree:8", "--alpha", "3", "--beta", "2", "--failures", "1..3,9", "--runs", "20", "--seed", "7", "-o", "json"}
	code, out, errs := call(t, args...)
	if code != exit.OK {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var trials []map[string]float64
	if err := json.Unmarshal([]byte(out), &trials); err != nil {
		t.Fatal(err)
	}
	var failures []float64
	for _, trial := range trials {
		failures = append(failures, trial["failures"])
		if len(trial) != 5 || trial["accuracy"] < 0.95 || trial["false_positive_ratio"] > 0.02 || trial["accuracy"]+trial["false_negative_ratio"] != 1 || trial["localise_seconds"] <= 0 {
			t.Errorf("%v", trial)
		}
		delete(trial, "localise_seconds")
	}
	if !slices.Equal(failures, []float64{1, 2, 3, 9}) {
		t.Errorf("failures %v", failures)
	}
	first := fmt.Sprint(trials)
	_, out, _ = call(t, args...)
	if err := json.Unmarshal([]byte(out), &trials); err != nil {
		t.Fatal(err)
	}
	for _, trial := range trials {
		delete(trial, "localise_seconds")
	}
	if again := fmt.Sprint(trials); again != first {
		t.Errorf("the same seed gave\n%s, then\n%s", first, again)
	}
}
