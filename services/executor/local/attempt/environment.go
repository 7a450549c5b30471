package attempt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/installation"
)

// Variable returns the value of a name in an environment. If a name stands there twice, the last value counts.
func Variable(env []string, name string) string {
	value := ""
	for _, pair := range env {
		if v, found := strings.CutPrefix(pair, name+"="); found {
			value = v
		}
	}
	return value
}

// LookUp finds a program in the PATH of an environment, as a shell would.
func LookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	for _, dir := range filepath.SplitList(Variable(env, "PATH")) {
		program := filepath.Join(dir, name)
		if executable(program) == nil {
			return filepath.Abs(program)
		}
	}
	if filepath.Ext(name) != "" && installation.Exists(name) {
		return "", fmt.Errorf("command not found: %s; to run the file of the working folder, put its interpreter before it, as in python3 %s", name, name)
	}
	return "", fmt.Errorf("command not found: %s", name)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("command not found: %s", path)
	case err != nil:
		return fmt.Errorf("cannot run %w", Plain(err))
	case info.IsDir():
		return fmt.Errorf("cannot run %s: is a folder", path)
	}
	if _, err := exec.LookPath(path); err != nil {
		return fmt.Errorf("cannot run %s: no permission to execute it (chmod +x gives it)", path)
	}
	return nil
}
