// Command gotrainer is a real trainer in plain Go: a multi-layer perceptron, trained
// by SGD with momentum on a generated set, data parallel over processes and devices,
// with checkpoints, and with reports to Switchyard's job API. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// Exit codes: a shell's for SIGTERM, and that of a wrong command line.
const (
	exitTerminated = 128 + int(syscall.SIGTERM)
	exitUsage      = 2
)

func main() {
	os.Exit(run())
}

func run() int {
	s, err := readSettings(os.Args[1:], os.Getenv, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "gotrainer: %v\n", err)
		return exitUsage
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(s.workers) // one device, one processor
	}
	book := newLedger(s.ledger, s.rank, os.Stderr)
	defer book.exit()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	// Nothing is finished first: what is on disk is whole at any moment.
	defer context.AfterFunc(ctx, func() {
		book.exit()
		os.Exit(exitTerminated)
	})()
	if err := train(ctx, s, book, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "gotrainer: rank %d: %v\n", s.rank, err)
		return 1
	}
	return 0
}
