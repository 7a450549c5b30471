// Command profiler runs the service that learns how jobs behave, as a process of its own.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/profiler"
)

func main() {
	os.Exit(run.Main(os.Args[1:], os.Environ(), os.Stderr, settings.ProfilerSection, func(a *settings.All) run.Service { return profiler.New(a.Profiler) }))
}
