// Package programs builds what tests run as processes: once for all test packages, and again only where the code has
// changed.
package programs

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A checked program ends if one of its services changes a record that others share.
const (
	released = "-s -w"
	checked  = released + " -X github.com/switchyard-dl/switchyard/libs/bus.checkRecords=1"
)

// All are the programs of an installation on one machine, and the trainer of the examples.
func All() []string {
	return []string{"cmd/switchyard", "cmd/switchyard-server", "cmd/switchyard-supervisor", "examples/gotrainer"}
}

// Build puts the programs of some packages, named from the root of the module, into a folder. The names of programs are
// those of their packages' folders. It builds in bin/test, where they stay for the next test, or for benchmarks in
// bin/bench: these measure programs as they are released, and all others run checked ones.
func Build(dir string, packages ...string) (err error) {
	flags, folder := checked, "test"
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() != "" {
		flags, folder = released, "bench"
	}
	root, err := root()
	if err != nil {
		return err
	}
	Look()
	built := filepath.Join(root, "bin", folder)
	if err := os.MkdirAll(built, 0o755); err != nil {
		return fmt.Errorf("build programs: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(built, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("build programs: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("wait for others that build: %w", err)
	}
	// As they are released: those that need no C library are static.
	static := func(p string) bool { return p == "cmd/switchyard" || p == "cmd/switchyard-supervisor" }
	for cgo, some := range map[string][]string{
		"CGO_ENABLED=0": slices.DeleteFunc(slices.Clone(packages), func(p string) bool { return !static(p) }),
		"CGO_ENABLED=1": slices.DeleteFunc(slices.Clone(packages), static),
	} {
		if err := build(root, built, cgo, flags, some); err != nil {
			return err
		}
	}
	for _, p := range packages {
		if err := place(filepath.Join(built, filepath.Base(p)), filepath.Join(dir, filepath.Base(p))); err != nil {
			return fmt.Errorf("build programs: %w", err)
		}
	}
	return nil
}

// Look reads the folders of the sources. Go does not know that a test depends on programs that it builds, but takes a
// test's last result for its next one only if the folders that it has read are as they were. What TestMain reads does
// not count, so tests whose programs it has built call Look.
func Look() {
	root, err := root()
	if err != nil {
		return // Build returns the error
	}
	for _, part := range []string{"go.mod", "cmd", "examples", "libs", "services", "test"} {
		// Tests of other packages put files there, and remove them.
		_ = filepath.WalkDir(filepath.Join(root, part), func(string, fs.DirEntry, error) error { return nil })
	}
}

func build(root, to, cgo, flags string, packages []string) error {
	if len(packages) == 0 {
		return nil
	}
	args := []string{"build", "-C", root, "-ldflags", flags, "-o", to + "/"}
	for _, p := range packages {
		args = append(args, "./"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %q: %w\n%s", args, err, out)
	}
	return nil
}

// place links a program, or copies it to another file system.
func place(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// root returns the folder of the module, above the current one. The laboratory's module lies in it.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(mod), "module github.com/switchyard-dl/switchyard\n") {
			return dir, nil
		}
	}
	return "", errors.New("find the module: no folder above has its go.mod")
}
