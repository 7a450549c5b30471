package netrole

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

const keyBytes = 32

// keepKey reads the key of probes, and makes one the first time. The key outlives the controller: after a change,
// servers with the old key would drop the probes of others, and the network would look lossy.
func keepKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	switch {
	case err == nil && len(key) != keyBytes:
		return nil, fmt.Errorf("read the key of probes %s: want %d bytes, found %d", path, keyBytes, len(key))
	case err == nil:
		return key, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read the key of probes: %w", err)
	}
	key = make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("draw the key of probes: %w", err)
	}
	if err := installation.WriteFile(path, key); err != nil {
		return nil, fmt.Errorf("keep the key of probes: %w", err)
	}
	return key, nil
}

// readPaths reads the stored paths, or none without a file. The paths outlive the controller: a link that passes
// nothing would not be on any path that is found later. readPaths renames a file that it cannot read: pingers find
// most paths again, and without a controller nothing is probed.
func readPaths(path string, log *slog.Logger) (map[train.NodeID]train.Paths, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[train.NodeID]train.Paths{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the paths of probes: %w", err)
	}
	all := map[train.NodeID]train.Paths{}
	if err := json.Unmarshal(text, &all); err != nil || all == nil {
		aside := path + ".bad"
		log.Warn("paths of probes cannot be read and are put aside", "file", aside, "error", err)
		if err := os.Rename(path, aside); err != nil {
			return nil, fmt.Errorf("put the paths of probes aside: %w", err)
		}
		return map[train.NodeID]train.Paths{}, nil
	}
	return all, nil
}

func keepPaths(path string, all map[train.NodeID]train.Paths) error {
	text, err := json.Marshal(all)
	if err == nil {
		err = installation.WriteFile(path, text)
	}
	if err != nil {
		return fmt.Errorf("keep the paths of probes: %w", err)
	}
	return nil
}
