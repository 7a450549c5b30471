// Package chaos judges a run in which processes were killed and disks filled: whether what was promised to users still
// holds. It reads a ledger that trainers and the driver of the faults keep apart from the bus, and compares it with
// what the bus says at the end. It injects nothing itself.
package chaos

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The events of the ledger. The first four are written by trainers, the others by the driver.
const (
	Start      = "start"
	Epoch      = "epoch"
	Step       = "step"
	Exit       = "exit"
	Killed     = "killed"     // a trainer was killed, alone or with its supervisor, and writes no exit
	Terminated = "terminated" // a trainer got SIGTERM from outside and wrote its exit
	Submitted  = "submitted"  // a job is about to be published
	Acked      = "acked"      // the bus has stored it
	Fault      = "fault"      // a fault begins
	Healed     = "healed"     // its cause is gone
	Announced  = "announced"  // the system has said that something is damaged
)

// Entry is one line of the ledger.
type Entry struct {
	Event   string  `json:"event"`
	Job     string  `json:"job,omitempty"`
	Attempt int     `json:"attempt,omitempty"`
	PID     int     `json:"pid,omitempty"`
	Rank    int     `json:"rank,omitempty"`
	Epoch   int     `json:"epoch,omitempty"`
	Step    int     `json:"step,omitempty"`
	Devices string  `json:"devices,omitempty"`
	Seconds float64 `json:"unix_seconds"`
	// Epochs are asked for by a submission, 0 if its code reports none; Ends are the states in which it may end.
	Epochs int           `json:"epochs,omitempty"`
	Ends   []train.State `json:"ends,omitempty"`
	// Sequence is where the bus says that it has stored a submission.
	Sequence uint64 `json:"sequence,omitempty"`
	// Text is the fault, or what was said about damage.
	Text string `json:"text,omitempty"`
}

// Read returns the ledger in the order of its times; none before the first line is written.
func Read(path string) ([]Entry, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	var entries []Entry
	for line := range bytes.Lines(data) {
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read the ledger: line %q: %w", line, err)
		}
		entries = append(entries, e)
	}
	return sorted(entries), nil
}

// Add puts an entry behind those of its time.
func Add(entries []Entry, e Entry) []Entry { return sorted(append(entries, e)) }

func sorted(entries []Entry) []Entry {
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Seconds, b.Seconds) })
	return entries
}

// Append adds a line in a single write, so that no crash mixes two. It stamps a line without a time.
func Append(path string, e Entry) error {
	if e.Seconds == 0 {
		e.Seconds = float64(time.Now().UnixMicro()) / 1e6
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode %s for the ledger: %w", e.Event, err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
