package rpc

import (
	"encoding/json"
	"fmt"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// TerminalRequest asks the executor of a node for a pipe to a terminal of a running job, on the subject
// `switchyard.executor.<node>.terminal`: that of an interactive job, or a new one beside the processes of another job.
type TerminalRequest struct {
	Job train.JobID `json:"job"`
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
func TerminalSubject(node train.NodeID) string {
	return "switchyard.executor." + string(node) + ".terminal"
}
