// Command energy runs the energy ledger as a process of its own.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/energy"
)

func main() {
	os.Exit(run.Main(os.Args[1:], os.Environ(), os.Stderr, settings.EnergySection, func(a *settings.All) run.Service { return energy.New(a.Energy) }))
}
