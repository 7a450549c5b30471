// Command nodeagent runs the node agent as a process of its own.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/nodeagent"
)

func main() {
	os.Exit(run.Main(os.Args[1:], os.Environ(), os.Stderr, settings.NodeAgentSection, func(a *settings.All) run.Service { return nodeagent.New(a.NodeAgent) }))
}
