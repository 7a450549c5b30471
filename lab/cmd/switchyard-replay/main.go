// Command switchyard-replay is the training code of switchyard-live: it replays a measured training.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/switchyard-dl/switchyard/lab/live/trainer"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return trainer.Run(ctx, os.Args[1:], os.Getenv, os.Stderr)
}
