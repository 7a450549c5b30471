// Package bustest gives a test the real bus: an embedded JetStream on a free port, with its streams and buckets.
package bustest

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
)

// Start runs a server for the length of the test.
func Start(t testing.TB) *busserver.Server {
	t.Helper()
	s, err := busserver.Start(busserver.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// StartForeign runs a server as somebody else may have set it up, with another limit of a message; it returns the
// address.
func StartForeign(t testing.TB, maxPayload int32) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, MaxPayload: maxPayload})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(15 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

// Connect opens a connection under a name for the length of the test, with the streams and buckets of the contract in
// place.
func Connect(t testing.TB, s *busserver.Server, name string) *bus.Bus {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: s.URL(), Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	return b
}

// StartCluster runs several servers that keep replicas of the same streams.
func StartCluster(t testing.TB, servers int) []*busserver.Server {
	t.Helper()
	ports := make([]int, servers)
	for i := range ports {
		ports[i] = FreePort(t)
	}
	started := make([]*busserver.Server, servers)
	for i := range started {
		s, err := busserver.Start(busserver.Options{
			Dir: t.TempDir(), Cluster: &busserver.Cluster{Name: fmt.Sprintf("bus-%d", i), Port: ports[i], Peers: ports},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		started[i] = s
	}
	return started
}

// FreePort returns a port of this machine that is not in use now.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // nothing is waited for
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}
