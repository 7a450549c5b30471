package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/switchyard-dl/switchyard/libs/installation"
)

// Keys is a folder with the private keys of roles, a file each. A process needs those of its own roles.
type Keys string

// FolderName is the name of the folder of keys in a data folder.
const FolderName = "keys"

// KeysOf returns the folder of keys in a data folder.
func KeysOf(dataDir string) Keys { return Keys(filepath.Join(dataDir, FolderName)) }

// path returns where the key of a role is, whether it is there or not.
func (k Keys) path(role string) string { return filepath.Join(string(k), role+".nk") }

// File returns the file with the key of a role; empty if there is none.
func (k Keys) File(role string) string {
	if _, err := os.Stat(k.path(role)); err != nil {
		return ""
	}
	return k.path(role)
}

// Make makes the keys that are missing, of all roles, and the list of the public ones. Only their owner can read them.
func (k Keys) Make() error {
	if err := os.MkdirAll(string(k), 0o700); err != nil {
		return fmt.Errorf("make the folder of keys: %w", err)
	}
	if err := os.Chmod(string(k), 0o700); err != nil {
		return fmt.Errorf("close the folder of keys to others: %w", err)
	}
	for _, role := range Roles() {
		if _, err := os.Stat(k.path(role)); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		pair, err := nkeys.CreateUser()
		if err != nil {
			return fmt.Errorf("make the key of %s: %w", role, err)
		}
		seed, err := pair.Seed()
		if err == nil {
			err = installation.WriteFile(k.path(role), append(seed, '\n')) // mode 0600
		}
		if err != nil {
			return fmt.Errorf("make the key of %s: %w", role, err)
		}
	}
	return k.keepRoster(time.Now().UTC())
}

// public returns the public key of a role.
func (k Keys) public(role string) (string, error) {
	data, err := os.ReadFile(k.path(role))
	if err != nil {
		return "", fmt.Errorf("read the key of %s: %w", role, err)
	}
	pair, err := nkeys.ParseDecoratedNKey(data)
	if err != nil {
		return "", fmt.Errorf("read the key of %s in %s: want a seed of a user, SU..: %w", role, k.path(role), err)
	}
	return pair.PublicKey()
}
