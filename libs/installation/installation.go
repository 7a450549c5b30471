// Package installation says where Switchyard is on this machine: the default data folder, the default bus, and the
// context file, in which `switchyard up` writes down its addresses for other commands.
package installation

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultURL is the bus that is used if nothing names another.
const DefaultURL = "nats://127.0.0.1:4222"

// CurrentUser returns the user of this process, named as admission names users.
func CurrentUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid%d", os.Getuid())
}

// DataDir returns the default data folder: $XDG_STATE_HOME/switchyard, else ~/.local/state/switchyard, else a folder in
// the system's temporary folder.
func DataDir() string {
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "switchyard")
	}
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "switchyard")
	}
	return filepath.Join(os.TempDir(), "switchyard")
}

// Context is the content of the context file.
type Context struct {
	NATS string `json:"nats"`
	// Keys is the folder with the keys of the bus.
	Keys    string `json:"keys,omitempty"`
	HTTP    string `json:"http"`
	DataDir string `json:"data_dir"`
	PID     int    `json:"pid"`
}

// ContextPath returns the path of the context file: $SWITCHYARD_CONTEXT, else a file in the default data folder.
func ContextPath() string {
	if p := os.Getenv("SWITCHYARD_CONTEXT"); p != "" {
		return p
	}
	return filepath.Join(DataDir(), ContextName)
}

// ContextName is the name of the context file in a data folder.
const ContextName = "context.json"

// ReadContext reads a context file.
func ReadContext(path string) (Context, error) {
	var c Context
	data, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("read %s: %w", path, err)
	}
	return c, nil
}

// WriteContext writes a context file in one step, so that no reader sees half of it.
func WriteContext(path string, c Context) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the folder of %s: %w", path, err)
	}
	return WriteFile(path, append(data, '\n'))
}

// Announce writes down the address of a `switchyard up`: in its own data folder and, for commands that name no bus, in
// the file at path. If that names another one that still answers, it stays, and Announce returns it.
func Announce(ctx context.Context, path string, c Context) (other Context, err error) {
	own := filepath.Join(c.DataDir, ContextName)
	if there, err := ReadContext(path); err == nil && there.NATS != c.NATS && there.answers(ctx) {
		if filepath.Clean(path) == filepath.Clean(own) {
			return there, nil
		}
		return there, WriteContext(own, c)
	}
	return Context{}, errors.Join(WriteContext(own, c), WriteContext(path, c))
}

// answers reports whether the process that wrote a context lives and its bus accepts connections.
func (c Context) answers(ctx context.Context) bool {
	return unix.Kill(c.PID, 0) != unix.ESRCH && Answers(ctx, c.NATS)
}

// Answers reports whether something accepts connections at the address of a bus.
func Answers(ctx context.Context, address string) bool {
	bus, err := url.Parse(address)
	if err != nil {
		return false
	}
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", bus.Host)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// Unpack writes embedded files into a folder, over those of an earlier version.
func Unpack(dir string, files embed.FS) error {
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(path))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
	if err != nil {
		return fmt.Errorf("unpack into %s: %w", dir, err)
	}
	return nil
}
