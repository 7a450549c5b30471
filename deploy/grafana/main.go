// Command grafana writes the dashboards into deploy/grafana/dashboards and the alerts into
// deploy/grafana/provisioning/alerting: `go run ./deploy/grafana`. With -check it reports files that differ.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail if a file differs")
	flag.Parse()
	files := map[string]object{filepath.Join("provisioning", "alerting", "switchyard.json"): provisioned(alerts())}
	for _, d := range dashboards() {
		files[filepath.Join("dashboards", d.uid+".json")] = d.grafana()
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := write(filepath.Join("deploy", "grafana", path), files[path], *check); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func write(path string, content object, check bool) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	if err := e.Encode(content); err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	if !check {
		return os.WriteFile(path, text.Bytes(), 0o644)
	}
	if known, err := os.ReadFile(path); err != nil || !bytes.Equal(known, text.Bytes()) {
		return fmt.Errorf("%s is out of date: make generate", path)
	}
	return nil
}
