package simrun

import (
	"encoding/csv"
	"strconv"
	"strings"
)

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
