// Command admission runs the front desk as a process of its own.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/services/admission"
)

func main() { os.Exit(run.Main(os.Args[1:], os.Environ(), os.Stderr, admission.New())) }
