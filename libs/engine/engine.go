// Package engine knows the container engines, and finds the one that works on this machine.
package engine

import (
	"bytes"
	"cmp"
	"context"
	"os/exec"
	"strings"
	"time"
)

// Engine is a program that runs and builds containers. There are no others than these: a name may come over the bus,
// and is executed.
type Engine string

// The engines.
const (
	None   Engine = ""
	Docker Engine = "docker"
	Podman Engine = "podman"
)

// All returns the engines in the order in which they are tried.
func All() []Engine { return []Engine{Docker, Podman} }

// Named returns the engine of a name, or None.
func Named(name string) Engine {
	if e := Engine(name); e == Docker || e == Podman {
		return e
	}
	return None
}

// Find returns the first engine that works for this user, or None and why none does. Each may take so long to answer.
func Find(ctx context.Context, patience time.Duration) (e Engine, trouble string) {
	var why []string
	for _, e := range All() {
		trouble := e.Trouble(ctx, patience)
		if trouble == "" {
			return e, ""
		}
		why = append(why, trouble)
	}
	return None, strings.Join(why, "; ")
}

// Trouble says why an engine cannot be used; it is empty if the engine answers.
func (e Engine) Trouble(ctx context.Context, patience time.Duration) string {
	path, err := exec.LookPath(string(e))
	if err != nil {
		return "no " + string(e) + " in PATH"
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "info")
	cmd.Stderr, cmd.WaitDelay = &said, patience
	if err := cmd.Run(); err != nil {
		return string(e) + ": " + cmp.Or(LastLine(said.Bytes()), err.Error())
	}
	return ""
}

// LastLine returns the last line of what an engine has said, which is its error.
func LastLine(said []byte) string {
	said = bytes.TrimSpace(said)
	return strings.TrimSpace(string(said[bytes.LastIndexByte(said, '\n')+1:]))
}
