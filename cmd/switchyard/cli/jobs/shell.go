package jobs

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// asTyped completes a job that is a command alone as a shell would run it: in the folder of the caller, with the
// caller's search path, virtual environment and language, under the name of its script.
func asTyped(spec *train.Spec, environ []string) error {
	*spec = Named(*spec)
	if spec.Image != "" {
		return nil // an image brings its own folder and environment
	}
	if spec.WorkDir == "" && spec.CustomDir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return exit.Errorf(exit.Failed, "change to a folder that exists, or name one with --work-dir", "find the current folder: %v", err)
		}
		spec.WorkDir = dir
	}
	env := map[string]string{}
	for _, pair := range environ {
		if name, value, found := strings.Cut(pair, "="); found && ofShell(name) {
			env[name] = value
		}
	}
	maps.Copy(env, spec.Env)
	if len(env) > 0 {
		spec.Env = env
	}
	return nil
}

// ofShell reports whether a variable says where the caller's programs are and how they speak.
func ofShell(name string) bool {
	return slices.Contains([]string{"PATH", "VIRTUAL_ENV", "LANG"}, name) || strings.HasPrefix(name, "CONDA_") || strings.HasPrefix(name, "LC_")
}

// Named gives a job without a name that of its script or program.
func Named(spec train.Spec) train.Spec {
	command := spec.Command
	if spec.ScriptPath != "" {
		command = []string{"python", spec.ScriptPath}
	}
	spec.Name = cmp.Or(spec.Name, nameOf(command))
	return spec
}

// nameOf returns a name for a command: that of its script, of its module (python -m), or of its program.
func nameOf(command []string) string {
	if len(command) == 0 {
		return ""
	}
	word := command[0]
	for i, arg := range command[1:] {
		if ext := filepath.Ext(arg); ext == ".py" || ext == ".sh" {
			word = strings.TrimSuffix(arg, ext)
			break
		}
		if arg == "-m" && i+2 < len(command) {
			word = command[i+2]
			break
		}
	}
	clean := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, filepath.Base(word))
	const longest = 63
	letters := []rune(strings.TrimSpace(clean))
	return string(letters[:min(len(letters), longest)])
}

// readEnvFile reads NAME=VALUE lines. Empty lines and those that begin with # do not count.
func readEnvFile(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--env-file: %w", err)
	}
	defer func() { _ = f.Close() }()
	var pairs []string
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !strings.Contains(line, "=") {
			return nil, fmt.Errorf("--env-file %s: line %d: want NAME=VALUE", path, n)
		}
		pairs = append(pairs, line)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("--env-file %s: %w", path, err)
	}
	return pairs, nil
}
