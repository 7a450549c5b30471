package trainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/switchyard-dl/switchyard/lab/live"
)

func unix(at time.Time) float64 { return float64(at.UnixMicro()) / 1e6 }

// note appends an epoch to the ledger in one write: processes of all jobs share the file.
func (t *trainer) note(e live.Epoch) error {
	if t.ledger == "" {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("note an epoch: %w", err)
	}
	file, err := os.OpenFile(t.ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("note an epoch: %w", err)
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// ReadLedger reads what all processes have trained, in the order in which they noted it.
func ReadLedger(path string) ([]live.Epoch, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	var all []live.Epoch
	for line := range bytes.Lines(data) {
		var e live.Epoch
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read the ledger %s: %q: %w", path, line, err)
		}
		all = append(all, e)
	}
	return all, nil
}
