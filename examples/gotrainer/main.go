// Command gotrainer is a real trainer in plain Go: a multi-layer perceptron, trained by SGD with momentum on a
// generated set, data parallel over processes and devices, with checkpoints, and with reports to Switchyard's job API.
// See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/servers"
)

// Exit codes: a shell's for SIGTERM, and that for a wrong command line.
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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if s.task.Type != taskWorker {
		return attend(ctx, s)
	}
	book := newLedger(s.ledger, s.rank, os.Stderr)
	defer book.exit()
	// Nothing is finished first: the checkpoint on disk is whole at any moment.
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

// attend is the work of a process that is not a worker: it serves the workers, or does nothing, until it is asked to
// end.
func attend(ctx context.Context, s settings) int {
	if s.task.Type == taskServer {
		_, port, err := net.SplitHostPort(s.servers[s.task.Index])
		var listener net.Listener
		if err == nil {
			listener, err = net.Listen("tcp", ":"+port)
		}
		if err == nil {
			err = servers.Serve(ctx, listener, s.processes)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "gotrainer: server %d: %v\n", s.task.Index, err)
			return 1
		}
	}
	<-ctx.Done()
	return exitTerminated
}
