package run_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/run"
)

// TestTheServicesOfAProcessShareAGuard: one file remembers what the process saw of the bus, also after a version in
// which each service had its own; all services heed it, and those that connect again.
func TestTheServicesOfAProcessShareAGuard(t *testing.T) {
	server, dir := bustest.Start(t), t.TempDir()
	seen := filepath.Join(dir, run.SeenFolder)
	if err := os.MkdirAll(seen, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second"} {
		if err := os.WriteFile(filepath.Join(seen, name+".json"), []byte(`{"losses":{"JOBS":{"stream":"JOBS","cause":"has a gap"}},"streams":{}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	connected := make(chan error, 3)
	connect := func(p run.Process) {
		b, err := p.Connect(t.Context())
		if err == nil {
			b.Close()
		}
		connected <- err
	}
	ctx, stop := context.WithCancel(t.Context())
	address, done := make(chan net.Addr, 1), make(chan error, 1)
	common := run.Common{HTTP: "127.0.0.1:0", NATS: server.URL(), DataDir: dir, LogLevel: "error", LogFormat: "text"}
	go func() {
		done <- run.Together(ctx, common, io.Discard, func(a net.Addr) { address <- a },
			&fake{name: "first", running: func(p run.Process) { connect(p); connect(p) }}, &fake{name: "second", running: connect})
	}()
	at := <-address
	for range 3 {
		if err := <-connected; err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"first/data: ", "second/data: "} {
		if _, body := get(t, "http://"+at.String()+"/readyz"); !strings.Contains(body, want) || !strings.Contains(body, "JOBS has a gap") {
			t.Errorf("/readyz lacks %q:\n%s", want, body)
		}
	}
	files, err := filepath.Glob(filepath.Join(seen, "*"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != "first.json" {
		t.Errorf("files %v, error %v; want first.json", files, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
