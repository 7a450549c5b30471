// Command web runs the service web as a process of its own.
package main

import (
	"os"
	"time"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/web"
)

func main() {
	os.Exit(run.Main(os.Args[1:], os.Environ(), os.Stderr, settings.WebSection, func(a *settings.All) run.Service { return web.New(a.Web, time.Now) }))
}
