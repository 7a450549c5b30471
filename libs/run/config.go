// Package run is the life of a process: configuration, structured logs, signals, health, metrics, ordered stop. It
// decides nothing for a service.
package run

import (
	"os"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Common is the configuration that every service shares.
type Common = settings.Common

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
