package identity_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/identity"
)

// A cluster of servers as in the manifests: clients show a certificate and a key, and nothing but a server joins it.
func TestServersAndClientsShowCertificates(t *testing.T) {
	keys := identity.Keys(t.TempDir())
	if err := keys.Deploy(identity.Deployment{Hosts: []string{"localhost"}}); err != nil {
		t.Fatal(err)
	}
	ports := []int{bustest.FreePort(t), bustest.FreePort(t)}
	first := startServer(t, keys, "first", "bus", ports[0], ports)
	second := startServer(t, keys, "second", "bus", ports[1], ports)
	await(t, "a route between the servers", func() bool { return first.NumRoutes() > 0 && second.NumRoutes() > 0 })

	// A service that was taken over plays a server: its certificate is good, but not a server's.
	var refused atomic.Bool
	first.SetLogger(listener{&refused}, false, false)
	rogue := startServer(t, keys, "rogue", "planner", bustest.FreePort(t), ports)
	await(t, "a refused server", refused.Load)
	url := fmt.Sprintf("nats://localhost:%d", first.Addr().(*net.TCPAddr).Port)
	planner := identity.Keys(filepath.Join(string(keys), "planner"))
	secure, err := planner.TLS()
	if err != nil {
		t.Fatal(err)
	}
	key, err := nats.NkeyOptionFromSeed(planner.File("planner"))
	if err != nil {
		t.Fatal(err)
	}
	connect := func(options ...nats.Option) error {
		nc, err := nats.Connect(url, options...)
		if err == nil {
			nc.Close()
		}
		return err
	}
	if err := connect(key, nats.Secure(secure)); err != nil {
		t.Errorf("the planner is refused: %v", err)
	}
	if err := connect(nats.Secure(secure)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without a key: %v", err)
	}
	if err := connect(key, nats.RootCAs(filepath.Join(string(planner), "ca.crt"))); err == nil {
		t.Error("without a certificate the planner is let in")
	}
	if err := connect(key); err == nil {
		t.Error("without the authority the planner trusts the server")
	}
	if joined := rogue.NumRoutes(); joined > 0 {
		t.Errorf("a server with the certificate of a service has %d routes", joined)
	}
}

// listener notes whether a server refuses another one.
type listener struct{ refused *atomic.Bool }

func (l listener) Errorf(format string, args ...any) {
	if strings.Contains(fmt.Sprintf(format, args...), "authentication error") {
		l.refused.Store(true)
	}
}
func (listener) Noticef(string, ...any) {}
func (listener) Warnf(string, ...any)   {}
func (listener) Fatalf(string, ...any)  {}
func (listener) Debugf(string, ...any)  {}
func (listener) Tracef(string, ...any)  {}

// startServer starts a nats-server of a cluster, with the certificate of a process.
func startServer(t *testing.T, keys identity.Keys, name, certificate string, port int, routes []int) *bustest.Server {
	t.Helper()
	dir := filepath.Join(string(keys), certificate)
	file := filepath.Join(t.TempDir(), "nats.conf")
	config := fmt.Sprintf(`
server_name: %s
listen: "127.0.0.1:-1"
tls { cert_file: %[2]q, key_file: %[3]q, ca_file: %[4]q, verify: true }
include %[5]q
jetstream { store_dir: %[6]q }
cluster {
  name: switchyard
  listen: "127.0.0.1:%[7]d"
  advertise: "localhost:%[7]d"
  tls { cert_file: %[2]q, key_file: %[3]q, ca_file: %[4]q, verify_cert_and_check_known_urls: true }
  routes: ["nats://localhost:%[8]d", "nats://localhost:%[9]d"]
}
`, name, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt"), relative(t, file, filepath.Join(string(keys), identity.AccountsName)), t.TempDir(), port, routes[0], routes[1])
	return bustest.StartFile(t, file, config)
}

// relative returns a path as a file's include names it.
func relative(t *testing.T, file, path string) string {
	t.Helper()
	name, err := filepath.Rel(filepath.Dir(file), path)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for !holds() {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			t.Fatalf("%s: not seen", what)
		}
	}
}

// The processes of a cluster get Secrets with their own files alone.
func TestAKustomizationHasASecretForEachProcess(t *testing.T) {
	keys := identity.Keys(t.TempDir())
	for range 2 { // the second time renews certificates and keeps keys
		if err := keys.Deploy(identity.Deployment{Kubernetes: true}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Join(string(keys), "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the kustomization is\n%s", got)
	}
	if err := keys.Deploy(identity.Deployment{Kubernetes: true, Namespace: "yard"}); err != nil {
		t.Fatal(err)
	}
	if got, err = os.ReadFile(filepath.Join(string(keys), "kustomization.yaml")); err != nil {
		t.Fatal(err)
	}
	renamed := strings.NewReplacer("namespace: switchyard-nodes", "namespace: yard-nodes", "namespace: switchyard", "namespace: yard").Replace(string(want))
	if string(got) != renamed {
		t.Errorf("in another namespace the kustomization is\n%s", got)
	}
	shown, err := tls.LoadX509KeyPair(filepath.Join(string(keys), "bus", "tls.crt"), filepath.Join(string(keys), "bus", "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bus.yard.svc", "bus-0.bus.yard.svc"} {
		if err := shown.Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}
