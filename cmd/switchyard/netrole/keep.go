package netrole

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/switchyard-dl/switchyard/libs/train"
)

const keyBytes = 32

// keepKey reads the key of probes, and draws it where there is none yet. It outlives the controller: with a new one, servers that do not have it yet would drop the
// probes of others, and the network would look lossy.
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
	if err := replace(path, key); err != nil {
		return nil, fmt.Errorf("keep the key of probes: %w", err)
	}
	return key, nil
}

// readPaths reads the paths that were found; none where there is no file. They outlive the controller: found anew, a link that lets nothing through would be on none.
func readPaths(path string) (map[train.NodeID]train.Paths, error) {
	all := map[train.NodeID]train.Paths{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the paths of probes %s: %w", path, err)
	}
	return all, nil
}

func keepPaths(path string, all map[train.NodeID]train.Paths) error {
	text, err := json.Marshal(all)
	if err == nil {
		err = replace(path, text)
	}
	if err != nil {
		return fmt.Errorf("keep the paths of probes: %w", err)
	}
	return nil
}

// replace writes a file as a whole or not at all.
func replace(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
