// Command switchyard-server holds the eight services and an embedded bus. `switchyard up` starts it.
package main

import (
	"os"

	"github.com/switchyard-dl/switchyard/cmd/switchyard-server/server"
	"github.com/switchyard-dl/switchyard/services/executor/local/supervisor"
)

func main() {
	// The supervisors of jobs are this program too.
	supervisor.RunIfAsked(os.Args)
	os.Exit(server.Main(os.Args, os.Stdout, os.Stderr))
}
