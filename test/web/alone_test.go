package web

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/test/programs"
	"github.com/switchyard-dl/switchyard/test/web/chromium"
)

// alone is the service web as a process of its own, on a bus that has what a test puts there.
type alone struct {
	t       testing.TB
	ctx     context.Context //nolint:containedctx // that of one test
	server  *busserver.Server
	bus     *bus.Bus
	dir     string
	listen  string
	process *exec.Cmd
	client  *http.Client
}

// newAlone starts the bus. The service begins with start.
func newAlone(t testing.TB) *alone {
	t.Helper()
	programs.Look()
	server := bustest.Start(t)
	a := &alone{t: t, ctx: t.Context(), server: server, bus: bustest.Connect(t, server, "test"), dir: t.TempDir(), listen: "127.0.0.1:0"}
	socket := filepath.Join(a.dir, "web.sock")
	a.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return installation.DialUnix(ctx, socket) }}}
	t.Cleanup(a.client.CloseIdleConnections)
	return a
}

// openAlone makes both, and a browser, or skips the test if there is none.
func openAlone(t *testing.T) (*alone, *screen) {
	t.Helper()
	if _, err := chromium.Find(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return newAlone(t), newScreen(ctx, t)
}

// start begins the service, at the same address as before.
func (a *alone) start() {
	a.t.Helper()
	a.process = exec.CommandContext(a.ctx, filepath.Join(binaries, "web"), "--config", os.DevNull, "--data-dir", a.dir, "--nats", a.server.URL(), "--http", "127.0.0.1:0", "--log-level", "warn")
	a.process.Env, a.process.Stderr = append(os.Environ(), "SWITCHYARD_WEB_LISTEN="+a.listen), os.Stderr
	if err := a.process.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(a.kill)
	a.listen = strings.TrimPrefix(strings.Split(a.link(), "/#")[0], "http://")
}

// kill ends the service as a crash does.
func (a *alone) kill() {
	_ = a.process.Process.Signal(syscall.SIGKILL)
	_ = a.process.Wait()
}

// link asks for a link to the page until the service gives one.
func (a *alone) link() string {
	a.t.Helper()
	for range tick.Every(a.ctx, 50*time.Millisecond) {
		if link := a.try(); link != "" {
			return link
		}
	}
	a.t.Fatal("no link in time")
	return ""
}

func (a *alone) try() string {
	request, err := http.NewRequestWithContext(a.ctx, http.MethodPost, "http://switchyard/api/v1/links", http.NoBody)
	if err != nil {
		return ""
	}
	response, err := a.client.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(response.Body)
	_, rest, _ := strings.Cut(string(text), `"url":"`)
	link, _, _ := strings.Cut(rest, `"`)
	return link
}

// put writes a record, as the service that owns it does.
func put[T any](t testing.TB, b *bus.Bus, bucket contract.Bucket[T], key string, value T) {
	t.Helper()
	kv, err := bus.OpenKV(t.Context(), b, bucket)
	if err == nil {
		err = kv.Put(t.Context(), key, value)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// remove deletes a record.
func remove[T any](t testing.TB, b *bus.Bus, bucket contract.Bucket[T], key string) {
	t.Helper()
	kv, err := bus.OpenKV(t.Context(), b, bucket)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), key)
	if err == nil {
		err = kv.Delete(t.Context(), key, entry.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}
