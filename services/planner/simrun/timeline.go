package simrun

import (
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/sheet"
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
	err := sheet.Write(&text, rows)
	return text.String(), err
}
