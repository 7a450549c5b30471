// Command energy runs the book-keeper of energy as a process of its own.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/services/energy"
)

func main() { os.Exit(run.Main(os.Args[1:], os.Environ(), os.Stderr, energy.New())) }
