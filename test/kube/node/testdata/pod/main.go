// Command pod runs in the tests' containers: it prints its environment, calls the job API, works for a while and waits
// for its end.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	environ := os.Environ()
	slices.Sort(environ)
	for _, pair := range environ {
		if strings.HasPrefix(pair, "SWITCHYARD_JOB_GPU_") {
			fmt.Println(pair)
		}
	}
	if api := os.Getenv("SWITCHYARD_JOB_API"); api != "" {
		response, err := http.Get(api + "/v1/jobs/" + os.Getenv("JOB_UUID") + "/control")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		} else {
			fmt.Fprintln(os.Stderr, "job API:", response.Status)
		}
	}
	work, _ := time.ParseDuration(os.Getenv("WORK"))
	for processorTime() < work {
		continue
	}
	if os.Getenv("WORK") == "" {
		<-stop
		return
	}
	fmt.Println("worked", work)
}

// processorTime returns the processor time of this process: on a busy machine seconds pass without work.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
