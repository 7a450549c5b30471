// Package bustest gives a test the real bus: an embedded JetStream on a free port, with its streams and buckets.
package bustest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/identity"
)

// Parallel sets how many parallel tests run at once, unless -parallel does: more than there are processors, where tests
// mostly wait. TestMain calls it before the tests.
func Parallel(tests int) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set(strconv.Itoa(tests))
	}
}

// Start runs a server for the length of the test.
func Start(t testing.TB) *busserver.Server {
	t.Helper()
	s, err := busserver.Start(busserver.Options{Open: true, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// StartGuarded runs a server that lets in only clients with a key, as products do, and returns the folder of the keys.
// Those of the agents of nodes are among them.
func StartGuarded(t testing.TB, nodes ...string) (*busserver.Server, identity.Keys) {
	t.Helper()
	keys, accounts := Accounts(t, nodes...)
	s, err := busserver.Start(busserver.Options{Dir: t.TempDir(), Accounts: accounts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s, keys
}

// Accounts makes the keys of all roles and of the agents of nodes, and returns their folder and the accounts that
// servers need for them.
func Accounts(t testing.TB, nodes ...string) (keys identity.Keys, accounts string) {
	t.Helper()
	keys = identity.KeysOf(t.TempDir())
	err := keys.Make()
	for _, node := range nodes {
		err = errors.Join(err, keys.AddNode(node))
	}
	if err == nil {
		accounts, err = keys.Accounts()
	}
	if err != nil {
		t.Fatal(err)
	}
	return keys, accounts
}

// StartForeign runs a server with another limit of a message, as an operator may have set it up, and returns its
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

// Server is a nats-server as an operator runs it.
type Server = server.Server

// StartFile runs a server with a configuration, which it puts into a file.
func StartFile(t testing.TB, file, config string) *Server {
	t.Helper()
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	options.NoSigs = true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	return s
}

// Connect opens a connection under a name for the length of the test, with the streams and buckets of the contract in
// place.
func Connect(t testing.TB, s *busserver.Server, name string) *bus.Bus {
	t.Helper()
	return ConnectWith(t, bus.Config{URL: s.URL(), Name: name})
}

// ConnectWith is Connect to a server that wants a key.
func ConnectWith(t testing.TB, c bus.Config) *bus.Bus {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	b, err := bus.Connect(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	return b
}

// JetStream is the bus as a client has it that knows nothing of Switchyard.
func JetStream(t testing.TB, url string, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Key is the option by which a client shows the key of a role.
func Key(t testing.TB, keys identity.Keys, role string) nats.Option {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(keys.File(role))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// StartCluster runs several servers that keep replicas of the same streams. Without accounts they let everyone in.
func StartCluster(t testing.TB, servers int, accounts string) []*busserver.Server {
	t.Helper()
	ports := make([]int, servers)
	for i := range ports {
		ports[i] = FreePort(t)
	}
	started := make([]*busserver.Server, servers)
	for i := range started {
		s, err := busserver.Start(busserver.Options{
			Open: accounts == "", Accounts: accounts, Dir: t.TempDir(), Cluster: &busserver.Cluster{Name: fmt.Sprintf("bus-%d", i), Port: ports[i], Peers: ports},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		started[i] = s
	}
	return started
}

// FreePort returns a port of this machine that is not in use now. It lies below the ports that kernels give to clients
// and to listeners that ask for any: otherwise one of those may take it before the test does.
func FreePort(t testing.TB) int {
	t.Helper()
	const lowest, highest = 15000, 32767
	for range 100 {
		port := lowest + rand.IntN(highest-lowest+1)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // nothing is waited for
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}
