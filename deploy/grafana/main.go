// Command grafana writes the dashboards into deploy/grafana/dashboards: `go run ./deploy/grafana`; with -check it says what differs.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail where a file differs")
	flag.Parse()
	for _, d := range dashboards() {
		if err := write(d, *check); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func write(d dashboard, check bool) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	if err := e.Encode(d.grafana()); err != nil {
		return fmt.Errorf("encode %s: %w", d.uid, err)
	}
	path := filepath.Join("deploy", "grafana", "dashboards", d.uid+".json")
	if !check {
		return os.WriteFile(path, text.Bytes(), 0o644) //nolint:gosec // Grafana reads it as another user
	}
	if known, err := os.ReadFile(path); err != nil || !bytes.Equal(known, text.Bytes()) {
		return fmt.Errorf("%s is out of date: make generate", path)
	}
	return nil
}
