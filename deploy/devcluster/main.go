// Command devcluster runs a real Kubernetes on one Linux machine for developing and testing Switchyard. It is the
// control plane, the kubelet, etcd and kubectl in one binary, beside Debian's containerd; package cluster decides what
// runs where and how it ends.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	if len(os.Args) > 1 {
		if run, ok := program(os.Args[1]); ok {
			// The programs read their own flags from the arguments behind their name.
			os.Args = os.Args[1:]
			os.Exit(run())
		}
	}
	os.Exit(execute(newCommand()))
}

// execute runs a command of this program's own until it is done or a signal ends it.
func execute(command *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", command.Name(), err)
		return 1
	}
	return 0
}
