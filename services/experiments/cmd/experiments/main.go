// Command experiments runs the experiments service as a process of its own.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/experiments"
)

func main() {
	os.Exit(run.Main(os.Args[1:], os.Environ(), os.Stderr, settings.ExperimentsSection, func(*settings.All) run.Service { return experiments.New() }))
}
