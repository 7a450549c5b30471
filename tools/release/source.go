package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// release is a clean clone of a commit, and what was built of it.
type release struct {
	// source is the clone, stage a folder for what is made on the way.
	source, stage string
	// version is that of the tag, or of the commit, without the leading v. The go command finds it.
	version, revision string
	// at is the time of the commit, which all files have.
	at    time.Time
	built map[string]string
}

// open clones the commit that is checked out where the program runs.
func open(ctx context.Context) (*release, error) {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	changed, err := output(ctx, root, "git", "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if changed != "" { // this program, with its units and scripts, would not be that of the commit
		return nil, fmt.Errorf("a release is made of a commit, and these files differ from it: commit or stash them\n%s", changed)
	}
	stage, err := os.MkdirTemp("", "switchyard-release-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the clone: %w", err)
	}
	r := &release{source: filepath.Join(stage, "source"), stage: stage, built: map[string]string{}}
	if err := r.clone(ctx, root); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *release) clone(ctx context.Context, root string) error {
	if _, err := output(ctx, root, "git", "clone", "--quiet", "--shared", root, r.source); err != nil {
		return err
	}
	text, err := output(ctx, r.source, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	if r.revision, err = output(ctx, r.source, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("read the time of the commit: %w", err)
	}
	r.at = time.Unix(seconds, 0).UTC()
	client, err := r.program(ctx, target{os: runtime.GOOS, arch: runtime.GOARCH}, "switchyard")
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(client)
	if err != nil {
		return fmt.Errorf("read the version of %s: %w", client, err)
	}
	r.version = strings.TrimPrefix(info.Main.Version, "v")
	return nil
}

func (r *release) close() { _ = os.RemoveAll(r.stage) }

// target is a system and a processor.
type target struct{ os, arch string }

// recipe is the package of a program, and whether it needs cgo, for NVML.
type recipe struct {
	pkg string
	cgo bool
}

func programs() map[string]recipe {
	all := map[string]recipe{
		"switchyard":            {"./cmd/switchyard", false},
		"switchyard-server":     {"./cmd/switchyard-server", true},
		"switchyard-supervisor": {"./cmd/switchyard-supervisor", false},
		"switchyard-trainer":    {"./examples/gotrainer", false},
	}
	for _, name := range services() {
		all["switchyard-"+name] = recipe{"./services/" + name + "/cmd/" + name, name == "nodeagent"}
	}
	return all
}

// noCompilerError says that a program cannot be built here.
type noCompilerError struct{ compiler, debian string }

// Error implements error.
func (e *noCompilerError) Error() string {
	return fmt.Sprintf("there is no %s here (Debian: apt-get install %s)", e.compiler, e.debian)
}

// compiler returns the C compiler for a target.
func compiler(t target) (string, error) {
	name, debian := "gcc", "gcc libc6-dev"
	if t.arch != runtime.GOARCH {
		cross := map[string][2]string{
			"arm64": {"aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"},
			"amd64": {"x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu libc6-dev-amd64-cross"},
		}[t.arch]
		name, debian = cross[0], cross[1]
	}
	if _, err := exec.LookPath(name); err != nil {
		return "", &noCompilerError{name, debian}
	}
	return name, nil
}

// program builds a program for a target, once, and returns its path. Nothing of the caller's Go settings counts: the
// commit alone says what is built, but for the C compiler.
func (r *release) program(ctx context.Context, t target, name string) (string, error) {
	path := filepath.Join(r.stage, "bin", t.os+"_"+t.arch, name)
	if r.built[path] != "" {
		return path, nil
	}
	p := programs()[name]
	env := []string{
		"GOOS=" + t.os, "GOARCH=" + t.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "CGO_ENABLED=0",
		"CGO_CFLAGS=-g -O2 -Wno-deprecated-declarations", "CGO_CPPFLAGS=", "CGO_LDFLAGS=",
	}
	if p.cgo {
		cc, err := compiler(t)
		if err != nil {
			return "", err
		}
		env = append(env, "CGO_ENABLED=1", "CC="+cc)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w", "-o", path, p.pkg)
	cmd.Dir, cmd.Env = r.source, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s for %s/%s: %w\n%s", name, t.os, t.arch, err, out)
	}
	r.built[path] = name
	return path, nil
}

// output runs a command in a folder and returns what it says.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
