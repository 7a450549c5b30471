package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/installation"
)

// natsContexts are the contexts that `nats --context NAME` finds, each with the role that it speaks as.
func natsContexts() map[string]string {
	return map[string]string{"switchyard": identity.User, "switchyard-operator": identity.Operator}
}

// writeNATSContexts tells the nats command line where the bus is, and with which keys.
func writeNATSContexts(at installation.Context) error {
	config, err := os.UserConfigDir()
	if err != nil {
		return fmt.Errorf("tell the nats command line about the bus: %w", err)
	}
	dir := filepath.Join(config, "nats", "context")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("tell the nats command line about the bus: %w", err)
	}
	for name, role := range natsContexts() {
		about := map[string]string{"description": "Switchyard, as " + role, "url": at.NATS, "nkey": identity.Keys(at.Keys).File(role)}
		if role == identity.Operator {
			about["inbox_prefix"] = identity.InboxPrefix(role)
		}
		text, err := json.MarshalIndent(about, "", "  ")
		if err == nil {
			err = installation.WriteFile(filepath.Join(dir, name+".json"), append(text, '\n')) // mode 0600
		}
		if err != nil {
			return fmt.Errorf("tell the nats command line about the bus: %w", err)
		}
	}
	return nil
}
