package simrun

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// WriteTimeline writes a CSV file with one row for each change of an allocation.
func WriteTimeline(path string, runs []Run) error {
	text, err := Timeline(runs)
	if err != nil {
		return fmt.Errorf("write timeline %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	return nil
}

// Timeline returns a CSV text with one row for each change of an allocation.
func Timeline(runs []Run) (string, error) {
	var text strings.Builder
	rows := [][]string{{"policy", "workload", "seconds", "job", "devices", "placement", "reason"}}
	for _, r := range runs {
		for _, c := range r.Changes {
			rows = append(rows, []string{
				r.Policy, r.Workload, strconv.FormatFloat(c.Seconds, 'f', -1, 64), c.Job, strconv.Itoa(c.Devices), c.Placement, c.Reason,
			})
		}
	}
	err := csv.NewWriter(&text).WriteAll(rows)
	return text.String(), err
}
