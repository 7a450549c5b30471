// Command admission runs the admission service as a process of its own.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/admission"
)

func main() {
	os.Exit(run.Main(os.Args[1:], os.Environ(), os.Stderr, settings.AdmissionSection, func(a *settings.All) run.Service { return admission.New(a.Admission) }))
}
