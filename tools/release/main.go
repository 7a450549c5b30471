// Command release makes the files of a release from a clean clone of a commit: archives of the programs, packages for
// deb and rpm, container images, the Helm chart, the Python distribution, the script that installs them, and their
// checksums. The same commit gives the same bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
)

func main() {
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// command reads the command line and makes the release.
func command() error {
	var o options
	flag.StringVar(&o.out, "out", "dist", "`FOLDER` of the files, which is emptied first")
	only := flag.String("only", ".", "make only the files whose names match this `PATTERN`")
	flag.BoolVar(&o.complete, "complete", false, "fail if a file has to be left out, because a compiler is missing here")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("read -only: %w", err)
	}
	return run(ctx, o)
}

type options struct {
	out      string
	only     *regexp.Regexp
	complete bool
}

// errIncomplete says that some file could not be made here.
var errIncomplete = errors.New("the release is not complete: see what was left out, above")

// run makes the files that are asked for. What this machine has no compiler for is left out, and said.
func run(ctx context.Context, o options) error {
	r, err := open(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	if err := os.RemoveAll(o.out); err != nil {
		return fmt.Errorf("empty the folder of the release: %w", err)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("make the folder of the release: %w", err)
	}
	var made []string
	complete := true
	all, err := r.artifacts()
	if err != nil {
		return err
	}
	for _, a := range all {
		if !o.only.MatchString(a.name) {
			continue
		}
		err := r.make(ctx, a, filepath.Join(o.out, a.name))
		if missing, is := errors.AsType[*noCompilerError](err); is {
			fmt.Printf("left out %s: %v\n", a.name, missing)
			complete = false
			continue
		}
		if err != nil {
			return fmt.Errorf("make %s: %w", a.name, err)
		}
		fmt.Println("made", filepath.Join(o.out, a.name))
		made = append(made, a.name)
	}
	if err := writeSums(o.out, made); err != nil {
		return err
	}
	if o.complete && !complete {
		return errIncomplete
	}
	return nil
}
