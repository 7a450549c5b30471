package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// nodeName is the file in the data folder that says which node the folder belongs to.
const nodeName = "node"

// SettleNode fills in the id of this machine and stores it in the data folder. A host can change its name (containers
// do at every start) while attempts and devices are recorded under the old one. So the folder's first id holds, and
// SettleNode refuses another one.
func SettleNode(c Common) (Common, error) {
	wanted := c.Node
	if wanted == "" {
		wanted = defaultNode()
	}
	kept, err := keepID(filepath.Join(c.DataDir, nodeName), wanted)
	if err != nil {
		return c, fmt.Errorf("settle the id of this machine: %w", err)
	}
	if c.Node != "" && c.Node != kept {
		return c, fmt.Errorf("--node %q: the data folder %s belongs to node %q; leave --node out, or use another --data-dir", c.Node, c.DataDir, kept)
	}
	c.Node = kept
	return c, nil
}

// keepID stores an id unless the folder has one, and returns the stored id. The file appears with its content, so of
// several processes that start at once one wins and the others read what it wrote.
func keepID(path, wanted string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := offer(path, wanted+"\n"); err != nil {
			return "", err
		}
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return "", err
	}
	kept := strings.TrimSpace(string(data))
	if _, err := train.ParseJobID(kept); err != nil {
		return "", fmt.Errorf("%s holds %.80q: want letters, digits, '-' or '_'", path, kept)
	}
	return kept, nil
}

// offer creates a file with its content unless it exists.
func offer(path, content string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
