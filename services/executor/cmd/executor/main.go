// Command executor runs jobs on this machine as the newest plan says.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/executor"
	"github.com/switchyard-dl/switchyard/services/executor/local/supervisor"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

func main() {
	// Supervisors of jobs are this program too.
	supervisor.RunIfAsked(os.Args)
	// So are the containers that fetch the data of pods.
	staging.RunIfAsked(os.Args)
	os.Exit(run.Main(os.Args[1:], os.Environ(), os.Stderr, settings.ExecutorSection, func(a *settings.All) run.Service { return executor.New(a.Executor) }))
}
