package train

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"

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

// TerminalRequest asks the executor of a node for a pipe to a terminal of a running job, on the subject
// `switchyard.executor.<node>.terminal`: that of an interactive job, or a new one beside the processes of another job.
type TerminalRequest struct {
	Job JobID `json:"job"`
	// Secret is that of the job's ShellSpec.
	Secret string `json:"secret,omitempty"`
	// Size is that of the terminal, Term its kind, as the variable TERM names it.
	Size TerminalSize `json:"size"`
	Term string       `json:"term,omitempty"`
	// Command runs on a new terminal; without it, the user's shell does.
	Command []string `json:"command,omitempty"`
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Columns uint16 `json:"columns"`
	Rows    uint16 `json:"rows"`
}

// The packets between a terminal and a job begin with their kind.
const (
	TerminalData   byte = 'd' // bytes typed, or to be shown
	TerminalResize byte = 's' // a TerminalSize as JSON: the terminal has another size
	TerminalExit   byte = 'x' // the exit status as JSON: the program has ended
)

// TerminalPacket returns a packet with a value as JSON.
func TerminalPacket(kind byte, value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode a packet for a terminal: %w", err)
	}
	return append([]byte{kind}, data...), nil
}

// TerminalPacketSize is the largest size of a packet.
const TerminalPacketSize = 32 << 10

// TerminalSubject is the subject on which the executor of a node answers a TerminalRequest.
func TerminalSubject(node NodeID) string { return "switchyard.executor." + string(node) + ".terminal" }
