package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/cgroup"
)

// probePrefix begins the name of a probe's folder; no job's name begins with it.
const probePrefix = ".probe-"

// ProbeSandbox finds out which sandbox this machine allows to jobs of a data folder. reason says why it allows none.
func ProbeSandbox(ctx context.Context, program Supervisor, dataDir string) (s attempt.Sandbox, reason, err error) {
	scratch := filepath.Join(dataDir, "jobs")
	if err := installation.MakeFolder(scratch); err != nil {
		return attempt.SandboxNone, nil, err
	}
	s, reason = Probe(ctx, program, scratch)
	return s, reason, nil
}

// Probe finds out which sandbox this machine allows: the program of supervisors runs `test` in it with folders mounted.
// The error says why there is none.
func Probe(ctx context.Context, program Supervisor, scratch string) (attempt.Sandbox, error) {
	kind := attempt.SandboxUser
	if os.Geteuid() == 0 {
		kind = attempt.SandboxRoot
	}
	err := program.tries(ctx, scratch, func(dir string) attempt.Launch {
		return attempt.Launch{
			Sandbox: kind, Hidden: filepath.Join(dir, "hidden"),
			Mounts:    []attempt.Mount{{Source: dir, Target: "/custom"}, {Source: dir, Target: "/snapshots"}, {Source: dir, Target: "/data"}},
			Processes: []attempt.Process{{Args: []string{"test", "-e", "/custom/seen"}, Dir: "/custom"}},
		}
	})
	if err != nil {
		return attempt.SandboxNone, fmt.Errorf("probe mounts: %w", err)
	}
	return kind, nil
}

// ProbeGroups finds out where this machine allows control groups to the attempts of a data folder: a supervisor runs
// `grep` in one of them. The error says why there are none.
func ProbeGroups(ctx context.Context, program Supervisor, machine cgroup.Machine, dataDir string) (cgroup.Parent, error) {
	parent, err := machine.Open()
	if err != nil {
		return "", err
	}
	scratch := filepath.Join(dataDir, "jobs")
	if err := installation.MakeFolder(scratch); err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s%d", probePrefix, os.Getpid())
	group := parent.Of(dataDir, name)
	if _, err := group.Make(0); err != nil {
		return "", err
	}
	err = program.tries(ctx, scratch, func(string) attempt.Launch {
		return attempt.Launch{Group: group, Processes: []attempt.Process{{Args: []string{"grep", "-q", name, "/proc/self/cgroup"}, Dir: "/"}}}
	})
	if err = errors.Join(err, group.Remove()); err != nil {
		return "", fmt.Errorf("probe control groups: %w", err)
	}
	return parent, nil
}

// tries lets a supervisor start the program of a launch, which must succeed. The launch's folder has a file seen and a
// folder hidden.
func (s Supervisor) tries(ctx context.Context, scratch string, compose func(dir string) attempt.Launch) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	scratch, err := filepath.EvalSymlinks(scratch)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(scratch, probePrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	launch := compose(dir)
	launch.Version, launch.Processes[0].Env = attempt.Version, []string{"PATH=" + os.Getenv("PATH")}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "seen"), nil, 0o600), os.Mkdir(filepath.Join(dir, "hidden"), 0o700), attempt.Folder{Path: dir}.WriteLaunch(launch)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.program(), attempt.Try, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	launch.Sandbox.Apply(cmd.SysProcAttr)
	if said, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(strings.TrimSpace(string(said))))
	}
	return nil
}
