package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// The verdicts of a row.
const (
	verdictRight    = "as expected"
	verdictWrong    = "WRONG"
	verdictNotTried = "not tried"
)

// row is a line of the table.
type row struct {
	what, expected, seen, verdict string
}

// notTried says why a row could not be tried here.
type notTried string

func (e notTried) Error() string { return string(e) }

func (r *row) judge(err error) {
	var reason notTried
	switch {
	case err == nil:
		r.verdict = verdictRight
		return
	case errors.As(err, &reason):
		r.verdict = verdictNotTried
	default:
		r.verdict = verdictWrong
	}
	if r.seen != "" {
		r.seen += "; "
	}
	r.seen += oneLine(err.Error())
}

// oneLine is for the cell of a table.
func oneLine(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "|", "/")), " ")
}

// table is what was seen on a machine.
type table struct {
	model, driver string
	count         int
	rows          []row
}

func tableOf(devices []gpu.Device, rows []row) table {
	return table{model: devices[0].Model, driver: devices[0].Driver, count: len(devices), rows: rows}
}

func (t table) text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tEXPECTED\tSEEN\tVERDICT")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.what, r.expected, r.seen, r.verdict)
	}
	_ = w.Flush()
	return b.String()
}

// write puts the table on the page of the model.
func (t table) write(dir string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nWhat `make gpu` saw on %s on a machine with %d of this GPU, driver %s. [How to read it](README.md).\n\n",
		t.model, time.Now().UTC().Format(time.DateOnly), t.count, t.driver)
	fmt.Fprintln(&b, "| what | expected | seen | verdict |\n|---|---|---|---|")
	for _, r := range t.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.what, r.expected, oneLine(r.seen), r.verdict)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the folder of the page: %w", err)
	}
	path := filepath.Join(dir, pageName(t.model))
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	fmt.Println("written to", path)
	return nil
}
