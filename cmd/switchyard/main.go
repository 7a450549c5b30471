// Command switchyard is the command line: a client of the bus, which starts switchyard-server for everything else.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli"
)

func main() { os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
