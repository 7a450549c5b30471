// Command web runs the service web as a process of its own. `web open [ADDRESS]` prints a link to the page of the one
// that has the same data folder: images have no other program that could ask.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/web"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

func main() {
	if words := os.Args[1:]; len(words) > 0 && words[0] == "open" {
		os.Exit(open(append(words[1:], "")[0]))
	}
	os.Exit(run.Main(os.Args[1:], os.Environ(), os.Stderr, settings.WebSection, func(a *settings.All) run.Service { return web.New(a.Web, time.Now) }))
}

// open prints a link to the page at an address.
func open(at string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	dir := cmp.Or(os.Getenv("SWITCHYARD_DATA_DIR"), installation.DataDir())
	link, err := web.Open(ctx, filepath.Join(dir, api.SocketName), at)
	if err != nil {
		fmt.Fprintln(os.Stderr, "web open:", err)
		return run.ExitError
	}
	fmt.Fprintln(os.Stdout, link)
	return run.ExitOK
}
