// Command switchyard-lab is the laboratory of Switchyard: it plays published measurements and workloads against the
// scheduler's own code.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/lab/cli"
)

func main() { os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
