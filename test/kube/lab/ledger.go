package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Entry is a line that the example trainer writes, apart from everything else.
type Entry struct {
	Event   string  `json:"event"`
	Attempt int     `json:"attempt"`
	Rank    int     `json:"rank"`
	Epoch   int     `json:"epoch"`
	At      float64 `json:"unix_seconds"`
}

// Ledger is the lines of the processes of one job.
type Ledger []Entry

// ReadLedger reads the file that TRAIN_LEDGER names.
func ReadLedger(path string) (Ledger, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	var all Ledger
	for line := range strings.Lines(string(data)) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("read ledger: %q: %w", line, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// Faults lists impossible events: a rank of an attempt that began twice, an attempt that began while an earlier one
// still wrote.
func (l Ledger) Faults() []string {
	var faults []string
	starts, last := map[[2]int]int{}, map[int]float64{}
	for _, e := range l {
		if e.Event == "start" {
			rank := [2]int{e.Attempt, e.Rank}
			if starts[rank]++; starts[rank] > 1 {
				faults = append(faults, fmt.Sprintf("rank %d of attempt %d began twice", e.Rank, e.Attempt))
			}
			for n, at := range last {
				if n < e.Attempt && at > e.At {
					faults = append(faults, fmt.Sprintf("attempt %d began while attempt %d was there", e.Attempt, n))
				}
			}
		}
		last[e.Attempt] = max(last[e.Attempt], e.At)
	}
	return faults
}

// Began returns the epoch at which the first rank of an attempt began, -1 if it did not.
func (l Ledger) Began(attempt int) int {
	i := slices.IndexFunc(l, func(e Entry) bool { return e.Event == "start" && e.Attempt == attempt && e.Rank == 0 })
	if i < 0 {
		return -1
	}
	return l[i].Epoch
}
