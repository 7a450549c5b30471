package train

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// ShellSpec makes a job interactive: its command runs on a terminal of its node, to which people attach theirs.
type ShellSpec struct {
	// Key is the SHA-256 (hex) of the secret with which a terminal may be attached; without it, everyone who reaches the
	// bus may.
	Key string `json:"key,omitempty"`
	// Keep lets the job run on while no terminal is attached. Without it, the job ends five minutes after the last one
	// has gone.
	Keep bool `json:"keep,omitempty"`
	// Idle ends the job after this time without a key pressed, e.g. 30m (default: never).
	Idle unit.Duration `json:"idle,omitempty"`
}

// Allows reports whether a terminal with this secret may be attached.
func (s *ShellSpec) Allows(secret string) bool {
	if s == nil || s.Key == "" {
		return true
	}
	return subtle.ConstantTimeCompare([]byte(s.Key), []byte(ShellKey(secret))) == 1
}

// Needs is Allows where a terminal without a secret is never attached.
func (s *ShellSpec) Needs(secret string) bool { return s != nil && s.Key != "" && s.Allows(secret) }

// ShellKey returns the Key for a secret.
func ShellKey(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
