package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// bench is a bus and the service on it.
type bench struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // the deadline of one test
	server *busserver.Server
	bus    *bus.Bus
	dir    string
	client *http.Client
}

func newBench(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	server := bustest.Start(t)
	// A data folder may lie deeper than the address of a socket is long.
	b := &bench{t: t, ctx: ctx, server: server, bus: bustest.Connect(t, server, "test"), dir: filepath.Join(t.TempDir(), strings.Repeat("deep", 30))}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return installation.DialUnix(ctx, b.socket())
	}
	b.client = &http.Client{Transport: &http.Transport{DialContext: dial}}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

func (b *bench) socket() string { return filepath.Join(b.dir, api.SocketName) }

// serve runs the service until the returned function is called, and waits until it is ready.
func (b *bench) serve() (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	common := run.Common{NATS: b.server.URL(), HTTP: "127.0.0.1:0", LogLevel: "error", LogFormat: "text", DataDir: b.dir, Node: "n"}
	health := make(chan net.Addr, 1)
	var running conc.WaitGroup
	running.Go(func() {
		if err := run.Together(ctx, common, io.Discard, func(a net.Addr) { health <- a }, New(time.Now)); err != nil {
			b.t.Error(err)
		}
	})
	stop = func() {
		cancel()
		b.client.CloseIdleConnections()
		running.Wait()
	}
	b.t.Cleanup(stop)
	ready := "http://" + (<-health).String() + "/readyz"
	b.until("the service is ready", func() bool {
		response, err := http.Get(ready)
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return stop
}

func (b *bench) until(what string, true func() bool) {
	b.t.Helper()
	for range tick.Every(b.ctx, 20*time.Millisecond) {
		if true() {
			return
		}
	}
	b.t.Fatalf("not in time: %s", what)
}

// ask sends a request and decodes the answer.
func ask[T any](b *bench, method, path string) (status int, answer T) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.ctx, method, "http://switchyard"+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	response, err := b.client.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	return response.StatusCode, answer
}

func (b *bench) put(j train.Job) {
	b.t.Helper()
	jobs, err := bus.OpenKV(b.ctx, b.bus, contract.Jobs)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := jobs.Modify(b.ctx, string(j.ID), func(v *train.Job) (bool, error) { *v = j; return true, nil }); err != nil {
		b.t.Fatal(err)
	}
}

// state is what the service says about a job; empty if it knows none.
func (b *bench) state(id train.JobID) train.State {
	b.t.Helper()
	_, page := ask[view.Page](b, "GET", "/api/v1/jobs")
	for _, j := range page.Jobs {
		if j.ID == id {
			return j.State
		}
	}
	return ""
}

func TestTheServiceFollowsTheBus(t *testing.T) {
	b := newBench(t)
	b.put(train.Job{ID: "a", State: train.StateQueued})
	stop := b.serve()
	if got := b.state("a"); got != train.StateQueued {
		t.Errorf("a ready service says %q of what was there before", got)
	}
	b.put(train.Job{ID: "a", State: train.StateRunning})
	b.until("the new state is known", func() bool { return b.state("a") == train.StateRunning })
	stop()
	b.put(train.Job{ID: "a", State: train.StateSucceeded})
	b.serve()
	if got := b.state("a"); got != train.StateSucceeded {
		t.Errorf("after a restart it says %q", got)
	}
}

// A killed service leaves its socket behind; two of them may overlap.
func TestTheSocketIsItsOwners(t *testing.T) {
	b := newBench(t)
	if err := os.WriteFile(b.socket(), []byte("left behind"), 0o644); err != nil {
		t.Fatal(err)
	}
	first := b.serve()
	b.serve()
	first()
	info, err := os.Stat(b.socket())
	if err != nil || info.Mode().Type() != fs.ModeSocket || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v, want a socket for its owner alone", info.Mode(), err)
	}
	if _, about := ask[api.About](b, "GET", "/api/v1"); about.Bus != b.server.URL() {
		t.Errorf("it serves %q, want %q", about.Bus, b.server.URL())
	}
}

func TestNonsenseIsAnsweredByAProblem(t *testing.T) {
	b := newBench(t)
	b.serve()
	for _, tt := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/", 404, "GET /: no such question"},
		{"GET", "/api/v1/job", 404, "GET /api/v1/job: no such question"},
		{"DELETE", "/api/v1/jobs", 404, "DELETE /api/v1/jobs: no such question"},
		{"GET", "/api/v1/jobs?usr=ann", 400, "usr: no such parameter (did you mean user?)"},
		{"GET", "/api/v1/jobs?x=1", 400, "x: no such parameter; there are user, state"},
		{"GET", "/api/v1/jobs?state=runing", 400, `state: "runing": no such state: did you mean running?`},
		{"GET", "/api/v1/jobs?newest=-1", 400, `newest: want a whole number from 0, found "-1"`},
		{"GET", "/api/v1/jobs?limit=1&limit=2", 400, "limit: given 2 times, want it once"},
		{"GET", "/api/v1/jobs?after=x", 400, `after "x": after is the next of the page before, as it is`},
	} {
		status, p := ask[api.Problem](b, tt.method, tt.path)
		told := strings.TrimSuffix(p.Detail+": "+p.Fix, ": ")
		if status != tt.status || p.Status != tt.status || p.Title != http.StatusText(status) || !strings.Contains(told, tt.want) {
			t.Errorf("%s %s: %d %+v, want %d %q", tt.method, tt.path, status, p, tt.status, tt.want)
		}
	}
	conn, err := installation.DialUnix(b.ctx, b.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "\x00\x01 this is no HTTP\r\n\r\n")
	if answer, _ := io.ReadAll(conn); !strings.HasPrefix(string(answer), "HTTP/1.1 400") {
		t.Errorf("bytes that are no HTTP: %q", answer)
	}
	if status, _ := ask[view.Page](b, "GET", "/api/v1/jobs"); status != http.StatusOK {
		t.Errorf("afterwards: %d", status)
	}
}
