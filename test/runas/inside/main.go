// Command inside is what an image of the test runs. It says what it finds around itself.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	for _, path := range os.Args[1:] {
		if text, err := os.ReadFile(path); err != nil {
			fmt.Println("refused:", err)
		} else {
			fmt.Println("read:", strings.TrimSpace(string(text)))
		}
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Cap") || strings.HasPrefix(line, "NoNewPrivs") {
			fmt.Print(line)
		}
	}
	found, err := os.Create("/snapshots/" + os.Getenv("JOB_UUID") + "/made")
	fmt.Println("saved:", err)
	_ = found.Close()
	_, err = net.DialTimeout("tcp", os.Getenv("SWITCHYARD_JOB_MANAGER"), time.Second)
	fmt.Println("the machine's loopback:", err)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", os.Getenv("SWITCHYARD_JOB_SOCKET"))
	}}}
	_, path, _ := strings.Cut(strings.TrimPrefix(os.Getenv("SWITCHYARD_JOB_API"), "http://"), "/")
	answer, err := client.Get("http://api/" + path + "/v1/jobs/" + os.Getenv("JOB_UUID") + "/anything") //nolint:noctx // the test ends it
	if err != nil {
		fmt.Println("job API:", err)
		return
	}
	text, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	fmt.Println("job API:", answer.StatusCode, string(text))
	for os.Getenv("STAY") != "" {
		time.Sleep(time.Hour) //nolint:forbidigo // until it is killed
	}
}
