// Package influxd gives a test a real InfluxDB 1.8, which serves the API of version 2 as far as Switchyard uses it.
// `make bin/influxd` builds it.
package influxd

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Server is one process with its own files.
type Server struct {
	URL    string
	binary string
	config string
	log    string
	cmd    *exec.Cmd
}

const configuration = `reporting-disabled = true
bind-address = "127.0.0.1:0"
[meta]
dir = "DIR/meta"
[data]
dir = "DIR/data"
wal-dir = "DIR/wal"
[http]
bind-address = "ADDRESS"
flux-enabled = true
log-enabled = false
[continuous_queries]
run-interval = "1s"
log-enabled = false
[monitor]
store-enabled = false
`

// Start runs a server for the length of the test and waits until it answers. It skips the test if there is no program
// to run.
func Start(t testing.TB) *Server {
	t.Helper()
	binary := find(t)
	if binary == "" {
		t.Skip("no influxd: `make bin/influxd` builds it from Go modules")
	}
	dir, address := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", bustest.FreePort(t))
	s := &Server{URL: "http://" + address, binary: binary, config: filepath.Join(dir, "influxdb.conf"), log: filepath.Join(dir, "influxd.log")}
	text := strings.NewReplacer("DIR", dir, "ADDRESS", address).Replace(configuration)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	s.Run(t)
	return s
}

// find returns the program that INFLUXD names, else the one that make put into the repository's bin.
func find(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("INFLUXD"); path != "" {
		return path
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.influxd.mod")); err == nil {
			path := filepath.Join(dir, "bin", "influxd")
			if _, err := os.Stat(path); err != nil {
				return ""
			}
			return path
		}
	}
	return ""
}

// Run starts the process, also again after Kill, and waits until it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	s.cmd = exec.Command(s.binary, "-config", s.config) //nolint:noctx // it is killed by the test's end
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for range tick.Every(ctx, 20*time.Millisecond) {
		if s.ping(ctx) == nil {
			return
		}
	}
	tail, _ := os.ReadFile(s.log)
	t.Fatalf("influxd does not answer:\n%s", tail)
}

func (s *Server) ping(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/ping", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("HTTP %d", response.StatusCode)
	}
	return nil
}

// Kill ends the process as a power cut would. Killing a dead one does nothing.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}
