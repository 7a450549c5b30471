// Command switchyard-supervisor supervises one attempt of a job: it starts the processes, keeps their output and
// records their end. The executor starts it and describes the attempt in one file. As `switchyard-supervisor launcher`
// it is the one program of root that starts jobs as their users. It links neither the bus nor Kubernetes.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/switchyard-dl/switchyard/services/executor/local/launcher"
	"github.com/switchyard-dl/switchyard/services/executor/local/supervisor"
)

var errUsage = errors.New("switchyard-supervisor runs one attempt of a job; the executor starts it. As `switchyard-supervisor launcher`, root starts it once, to start jobs as their users. `switchyard-supervisor version` prints the version of the launches that it reads")

func main() {
	err := run(os.Args)
	switch {
	case errors.Is(err, errUsage):
		const usage = 2
		fmt.Fprintf(os.Stderr, "%v.\n", err)
		os.Exit(usage)
	case err != nil:
		fmt.Fprintf(os.Stderr, "supervisor: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if known, err := supervisor.Run(args); known {
		return err
	}
	switch {
	case len(args) == 2 && args[1] == "--version":
		version := "devel"
		if info, known := debug.ReadBuildInfo(); known {
			version = info.Main.Version
		}
		fmt.Printf("switchyard-supervisor version %s\n", version)
		return nil
	case len(args) == 2 && args[1] == launcher.Argument:
		return superviseLaunched(os.Stdin)
	case len(args) == 2 && args[1] == launcher.ProcessesArgument:
		return launcher.ShowOwnProcesses()
	case len(args) > 1 && args[1] == launcher.Command:
		return launcher.Main(args[2:], os.Stderr)
	}
	return errUsage
}
