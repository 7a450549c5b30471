package system

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/switchyard-dl/switchyard/libs/busserver"
)

// busVariable makes this program a server of a NATS cluster, with the options in JSON.
const busVariable = "SYSTEM_TEST_BUS"

func serveBus(options string) int {
	var o busserver.Options
	err := json.Unmarshal([]byte(options), &o)
	if err == nil {
		var s *busserver.Server
		if s, err = busserver.Start(o); err == nil {
			stop := make(chan os.Signal, 1)
			signal.Notify(stop, syscall.SIGTERM)
			<-stop
			s.Stop()
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
