package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/config"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Common is what every process shares.
type Common struct {
	// Here is the server at the address NATS if it is embedded in this process, else nil. The services of this process
	// then connect to it without the network.
	Here interface{ InProcessConn() (net.Conn, error) }

	NATS string
	// Keys is the folder with the keys of this process on the bus; empty: in the data folder.
	Keys string
	// BusReplicas is the number of servers of a NATS cluster that keep each stream and bucket.
	BusReplicas int
	// Port is that of the embedded bus.
	Port      int
	HTTP      string
	LogLevel  string
	LogFormat string
	// DataDir is the node's folder: logs, attempts, private files.
	DataDir string
	// Node is the id of this machine. If empty, the data folder's first id holds.
	Node string
}

// Declare declares the sections bus, data and process.
func (c *Common) Declare(set *config.Set) {
	s := set.Section("bus", "The bus that connects the services: the embedded one of `switchyard up`, or a NATS server of your own.")
	s.String(&c.NATS, "nats", installation.DefaultURL, "URL of the NATS server, or several of a cluster, separated by commas; if set, `switchyard up` starts no bus").As("url").Flag().Check(c.checkNATS)
	s.String(&c.Keys, "keys", "", "folder with the keys by which the bus knows this process").Flag().Shown("keys in the data folder").Check(func() error { return absoluteOrNone(c.Keys) })
	s.Int(&c.BusReplicas, "bus-replicas", 1, "replicas of each stream and bucket in a NATS cluster: 1, 3 or 5, the same for every service").As("replicas").Check(func() error {
		if c.BusReplicas != 1 && c.BusReplicas != 3 && c.BusReplicas != 5 {
			return errors.New("want 1, 3 or 5")
		}
		if c.BusReplicas > 1 && !set.Given("nats") {
			return errors.New("want 1 without bus.url: the embedded bus is one server")
		}
		return nil
	})
	s.Int(&c.Port, "port", 4222, "port of the embedded bus on 127.0.0.1 (0: a free one)").Flag().Between(0, 65535)
	s = set.Section("data", "What this machine keeps, and under which name.")
	s.String(&c.DataDir, "data-dir", installation.DataDir(), "folder for job logs, attempts and the embedded bus").As("dir").Flag().Shown("~/.local/state/switchyard").
		Check(func() error { return absolute(c.DataDir) })
	s.String(&c.Node, "node", "", "id of this machine").Flag().Shown("what the data folder remembers, at first the host's name").Check(func() error {
		if _, err := train.ParseJobID(c.Node); c.Node != "" && err != nil {
			return errors.New("want letters, digits, '-' or '_'")
		}
		return nil
	})
	s = set.Section("process", "Logs and health of each process.")
	s.String(&c.HTTP, "http", "127.0.0.1:0", "address of /healthz, /readyz and /metrics (port 0: a free one, printed in the log)").Flag().Check(func() error {
		return hostPort(c.HTTP, "127.0.0.1:9100")
	})
	s.String(&c.LogLevel, "log-level", "info", "lowest level that is logged").Flag().OneOf("debug", "info", "warn", "error").AnyCase()
	s.String(&c.LogFormat, "log-format", "text", "form of the log").Flag().OneOf("text", "json")
}

func (c *Common) checkNATS() error {
	for server := range strings.SplitSeq(c.NATS, ",") {
		u, err := url.Parse(server)
		if err != nil || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) || u.Host == "" {
			return fmt.Errorf("want a URL such as %s", installation.DefaultURL)
		}
	}
	return nil
}

// KeysDir is the folder with the keys of this process.
func (c *Common) KeysDir() string { return cmp.Or(c.Keys, string(identity.KeysOf(c.DataDir))) }

// NodeID is the id of this machine, once it is settled.
func (c *Common) NodeID() train.NodeID { return train.NodeID(c.Node) }

// NewLogger makes the logger that the configuration asks for.
func (c *Common) NewLogger(w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

func hostPort(address, example string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("want host:port, e.g. %s", example)
	}
	return nil
}

func absolute(path string) error {
	if !filepath.IsAbs(path) {
		return errors.New("want an absolute path")
	}
	return nil
}

// absoluteOrNone also accepts an empty path.
func absoluteOrNone(path string) error {
	if path == "" {
		return nil
	}
	return absolute(path)
}

// webURL does not repeat the address in its error: it may contain a password.
func webURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("want http://ADDRESS or https://ADDRESS")
	}
	return nil
}
