package busserver

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Configured is a server with a configuration file, as operators run one.
type Configured struct{ s *server.Server }

// StartConfigured runs the server that a file describes, and waits until it accepts connections. It does not wait for
// JetStream: in a cluster that needs the other servers.
func StartConfigured(path string, log *slog.Logger) (*Configured, error) {
	options, err := server.ProcessConfigFile(path)
	if err != nil {
		return nil, fmt.Errorf("configure nats-server: %w", err)
	}
	options.NoSigs = true
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("configure nats-server: %w", err)
	}
	s.SetLoggerV2(logger{log}, false, false, false)
	s.Start()
	if !s.ReadyForConnections(15 * time.Second) {
		s.Shutdown()
		return nil, fmt.Errorf("start nats-server of %s: %w", path, errNotReady)
	}
	return &Configured{s}, nil
}

// Reload applies the file again, to connections that are open, too.
func (c *Configured) Reload() error {
	if err := c.s.Reload(); err != nil {
		return fmt.Errorf("apply the configuration of nats-server again: %w", err)
	}
	return nil
}

// URL returns the address for clients.
func (c *Configured) URL() string { return c.s.ClientURL() }

// Stop shuts the server down and waits for it.
func (c *Configured) Stop() {
	c.s.Shutdown()
	c.s.WaitForShutdown()
}
