// Package prometheus_test checks the rules for Prometheus.
package prometheus_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRulesAreOfMetricsThatExist: each rule names metrics of the services, the runbook says what to do about each
// alert, and tests.yaml says when it fires.
func TestRulesAreOfMetricsThatExist(t *testing.T) {
	var code bytes.Buffer
	for _, dir := range []string{"libs", "services", "cmd"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	rules, runbook, tests := read(t, "alerts.yaml"), read(t, "../../docs/operations.md"), read(t, "tests.yaml")
	metrics := regexp.MustCompile(`switchyard_[a-z0-9_]+`).FindAllString(rules+read(t, "records.yaml"), -1)
	for _, name := range metrics {
		if name = strings.TrimSuffix(name, "_bucket"); !bytes.Contains(code.Bytes(), []byte(`"`+name+`"`)) {
			t.Errorf("no code has the metric %s", name)
		}
	}
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	for _, alert := range alerts {
		if !strings.Contains(runbook, "| "+alert[1]+" |") {
			t.Errorf("the runbook has no line for %s", alert[1])
		}
		if !strings.Contains(tests, "alertname: "+alert[1]+", exp_alerts: [{") {
			t.Errorf("tests.yaml has no case in which %s fires", alert[1])
		}
	}
	if len(alerts) < 10 || len(metrics) < len(alerts) {
		t.Errorf("%d alerts, %d metrics", len(alerts), len(metrics))
	}
}

// TestTheRulesFireWhenTheyShould runs tests.yaml with Prometheus's own program.
func TestTheRulesFireWhenTheyShould(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool (Debian: apt-get install prometheus)")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml", "records.yaml"}, {"check", "config", "prometheus.yml"}, {"test", "rules", "tests.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
