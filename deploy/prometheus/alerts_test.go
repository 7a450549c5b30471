// Package prometheus_test checks the alert rules.
package prometheus_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAlertsAreOfMetricsThatExist: each rule names metrics of the services, and the runbook says what to do.
func TestAlertsAreOfMetricsThatExist(t *testing.T) {
	rules, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
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
	metrics := regexp.MustCompile(`switchyard_[a-z_]+`).FindAllString(string(rules), -1)
	for _, name := range metrics {
		if name = strings.TrimSuffix(name, "_bucket"); !bytes.Contains(code.Bytes(), []byte(`"`+name+`"`)) {
			t.Errorf("no code has the metric %s", name)
		}
	}
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	for _, alert := range alerts {
		if !strings.Contains(string(runbook), "| "+alert[1]+" |") {
			t.Errorf("the runbook has no line for %s", alert[1])
		}
	}
	if len(alerts) < 10 || len(metrics) < len(alerts) {
		t.Errorf("%d alerts, %d metrics", len(alerts), len(metrics))
	}
}
