// Package run is the life of a process: flags and environment, structured logs, signals, health, metrics, ordered stop. What a service decides is not in here.
package run

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// EnvPrefix begins every environment variable that sets a flag: SWITCHYARD_LOG_LEVEL is --log-level.
const EnvPrefix = "SWITCHYARD_"

// DefaultURL is where the bus is looked for.
const DefaultURL = "nats://127.0.0.1:4222"

// Common is the configuration that every service shares.
type Common struct {
	NATS string
	// BusReplicas is on how many servers of a NATS cluster everything is kept.
	BusReplicas int
	HTTP        string
	LogLevel    string
	LogFormat   string
	// DataDir is the node's folder: logs, attempts, private files.
	DataDir string
	// Node is the id of this machine; left empty, it is the one that the data folder was first used with (SettleNode).
	Node string
}

// Flags declares the common flags. The folder is absolute by default, under the user's state folder.
func (c *Common) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.NATS, "nats", DefaultURL, "URL of the NATS server")
	fs.IntVar(&c.BusReplicas, "bus-replicas", 1, "servers of a NATS cluster that keep each stream and bucket: 1, 3 or 5, the same for every service")
	fs.StringVar(&c.HTTP, "http", "127.0.0.1:0", "address of /healthz, /readyz and /metrics (port 0: a free one, printed in the log)")
	fs.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&c.LogFormat, "log-format", "text", "text or json")
	fs.StringVar(&c.DataDir, "data-dir", DefaultDataDir(), "folder for job logs, attempts and the embedded bus")
	fs.StringVar(&c.Node, "node", "", "id of this machine")
}

// Validate names every wrong setting at once.
func (c *Common) Validate() error {
	var errs []error
	if u, err := url.Parse(c.NATS); err != nil || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) || u.Host == "" {
		errs = append(errs, fmt.Errorf("--nats %q: want a URL such as %s", c.NATS, DefaultURL))
	}
	if c.BusReplicas != 1 && c.BusReplicas != 3 && c.BusReplicas != 5 {
		errs = append(errs, fmt.Errorf("--bus-replicas %d: want 1, 3 or 5", c.BusReplicas))
	}
	if _, _, err := net.SplitHostPort(c.HTTP); err != nil {
		errs = append(errs, fmt.Errorf("--http %q: want host:port, e.g. 127.0.0.1:9100", c.HTTP))
	}
	if _, err := parseLevel(c.LogLevel); err != nil {
		errs = append(errs, err)
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		errs = append(errs, fmt.Errorf("--log-format %q: want text or json", c.LogFormat))
	}
	if !filepath.IsAbs(c.DataDir) {
		errs = append(errs, fmt.Errorf("--data-dir %q: want an absolute path", c.DataDir))
	}
	if _, err := train.ParseJobID(c.Node); c.Node != "" && err != nil {
		errs = append(errs, fmt.Errorf("--node %q: want letters, digits, '-' or '_'", c.Node))
	}
	return errors.Join(errs...)
}

// NodeID is the id of this machine, once it is settled.
func (c *Common) NodeID() train.NodeID { return train.NodeID(c.Node) }

func parseLevel(s string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s)); err != nil {
		return level, fmt.Errorf("--log-level %q: want debug, info, warn or error", s)
	}
	return level, nil
}

// DefaultDataDir is $XDG_STATE_HOME/switchyard, else ~/.local/state/switchyard, else a folder of the system's temporary one.
func DefaultDataDir() string {
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "switchyard")
	}
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "switchyard")
	}
	return filepath.Join(os.TempDir(), "switchyard")
}

func defaultNode() string {
	name, err := os.Hostname()
	if err != nil {
		return "node"
	}
	name, _, _ = strings.Cut(name, ".")
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	if _, err := train.ParseJobID(clean); err != nil {
		return "node"
	}
	return clean
}

// foreign are variables with the product's prefix that set no flag: the tests' data folder, the command line's own, and what a job finds in
// its environment.
func foreign(name string) bool {
	switch name {
	case "SWITCHYARD_DATA", "SWITCHYARD_CONTEXT", "SWITCHYARD_JOB", "SWITCHYARD_ATTEMPT", "SWITCHYARD_DEVICES",
		"SWITCHYARD_CUSTOM_DIR", "SWITCHYARD_SNAPSHOTS_DIR", "SWITCHYARD_DATASETS_DIR":
		return true
	}
	return strings.HasPrefix(name, "SWITCHYARD_JOB_")
}

// ApplyEnv sets from the environment every flag that the command line left alone. A variable with the product's prefix that
// sets nothing is refused by name, with the near miss.
func ApplyEnv(fs *pflag.FlagSet, environ []string) error {
	var errs []error
	names := []string{}
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		rest, ours := strings.CutPrefix(name, EnvPrefix)
		if !ours || foreign(name) {
			continue
		}
		flag := fs.Lookup(strings.ToLower(strings.ReplaceAll(rest, "_", "-")))
		if flag == nil {
			errs = append(errs, fmt.Errorf("environment variable %s sets nothing here%s", name, suggest(rest, names)))
			continue
		}
		if flag.Changed {
			continue
		}
		if err := fs.Set(flag.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func suggest(rest string, names []string) string {
	near := train.NearMiss(strings.ToLower(strings.ReplaceAll(rest, "_", "-")), names)
	if near == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s%s?)", EnvPrefix, strings.ToUpper(strings.ReplaceAll(near, "-", "_")))
}
