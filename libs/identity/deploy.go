package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// AccountsName is the file, in a folder of keys, that a nats-server includes.
const AccountsName = "bus/accounts.conf"

// Deploy makes everything that processes on several machines need, before any of them runs: keys, accounts, and for
// each process a folder with its own files alone.
func (k Keys) Deploy() error {
	if err := k.Make(); err != nil {
		return err
	}
	if _, err := k.Seal(); errors.Is(err, os.ErrNotExist) {
		seal, err := NewSeal(0) // nothing was admitted before
		if err == nil {
			err = seal.Keep(k)
		}
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	accounts, err := k.Accounts()
	if err == nil {
		err = write(filepath.Join(string(k), AccountsName), []byte(accounts))
	}
	if err != nil {
		return fmt.Errorf("write the accounts: %w", err)
	}
	for _, role := range Roles() {
		if err := k.deploy(role); err != nil {
			return fmt.Errorf("make the folder for %s: %w", role, err)
		}
	}
	return nil
}

// deploy copies what a process needs.
func (k Keys) deploy(role string) error {
	files := []string{role + ".nk", rosterName}
	switch role {
	case "admission": // it makes the streams, too
		files = append(files, Operator+".nk", sealName, publicName)
	case "executor":
		files = append(files, publicName)
	}
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(string(k), name))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(string(k), role, name), data); err != nil {
			return err
		}
	}
	return nil
}

// write writes a file that another user of a container may read; outside of it, the folder of keys keeps others out.
func write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	return os.WriteFile(path, data, 0o644) //nolint:gosec // as above
}
