// Command switchyard is the one binary that a person types.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli"
	"github.com/switchyard-dl/switchyard/services/executor/local"
)

func main() {
	local.RunIfAsked(os.Args)
	os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
}
