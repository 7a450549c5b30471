package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/switchyard-dl/switchyard/libs/run"
)

// place is what `switchyard up` writes down so that the other commands find it.
type place struct {
	NATS    string `json:"nats"`
	HTTP    string `json:"http"`
	DataDir string `json:"data_dir"`
	PID     int    `json:"pid"`
}

// contextPath is where the file is: $SWITCHYARD_CONTEXT, else beside the default data folder.
func (a *app) contextPath() string {
	if a.context != "" {
		return a.context
	}
	if p := os.Getenv("SWITCHYARD_CONTEXT"); p != "" {
		return p
	}
	return filepath.Join(run.DefaultDataDir(), "context.json")
}

func readContext(path string) (place, error) {
	var p place
	data, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("read %s: %w", path, err)
	}
	return p, nil
}

func writeContext(path string, p place) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the folder of %s: %w", path, err)
	}
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
