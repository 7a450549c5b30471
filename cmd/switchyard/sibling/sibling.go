// Package sibling finds and starts the programs that are installed together with this one.
package sibling

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// Server holds the services and the embedded bus. Supervisor, beside it, supervises the attempts of jobs.
const (
	Server     = "switchyard-server"
	Supervisor = "switchyard-supervisor"
)

// Find returns the path of a program: beside this program's own executable, else in PATH.
func Find(name string) (path string, found bool) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path, true
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", false
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", false
	}
	return path, true
}

// FindServer returns the path of the server.
func FindServer() (string, error) {
	path, found := Find(Server)
	if !found {
		return "", exit.Errorf(exit.Failed, "build it with `make build`, and install it beside this program or in a folder of PATH",
			"%s is neither beside this program nor in PATH", Server)
	}
	return path, nil
}

// FindSupervisor returns the path of the supervisor that a server starts: the one beside the server's own file.
func FindSupervisor(server string) (path string, found bool) {
	file, err := filepath.EvalSymlinks(server)
	if err != nil {
		return "", false
	}
	path = filepath.Join(filepath.Dir(file), Supervisor)
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return "", false
	}
	return path, true
}

// BecomeServer replaces this process with the server, which keeps the process id, the terminal and all signals. It
// returns only if that failed. The server takes this program's name, which its messages and its help begin with.
func BecomeServer(name string, args []string) error {
	path, err := FindServer()
	if err != nil {
		return err
	}
	err = syscall.Exec(path, append([]string{name}, args...), os.Environ())
	return fmt.Errorf("start %s: %w", path, err)
}
