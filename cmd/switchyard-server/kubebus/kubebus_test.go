package kubebus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sourcegraph/conc"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttest "k8s.io/client-go/testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/kubetoken"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/nodekey"
)

const agent = "system:serviceaccount:switchyard-nodes:nodeagent"

// yard is a server of the bus, and the API server that it asks.
type yard struct {
	t          *testing.T
	keys       identity.Keys
	url, door  string
	nodes      metadatafake.MetadataClient
	connection nats.Option
}

// users are whose the tokens are.
func users() map[string]authenticationv1.UserInfo {
	on := func(node string) map[string]authenticationv1.ExtraValue {
		return map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {node}, "authentication.kubernetes.io/pod-name": {"nodeagent-x"}}
	}
	return map[string]authenticationv1.UserInfo{
		"of n1": {Username: agent, Extra: on("n1")}, "of n2": {Username: agent, Extra: on("n2")}, "of n3": {Username: agent, Extra: on("n3")},
		"unbound": {Username: agent}, "of a job": {Username: "system:serviceaccount:switchyard-jobs:default", Extra: on("n1")},
	}
}

func start(t *testing.T) *yard {
	t.Helper()
	dir := t.TempDir()
	y := &yard{t: t, keys: identity.Keys(filepath.Join(dir, "keys"))}
	y.must(y.keys.Deploy(identity.Deployment{Kubernetes: true}))
	secure, err := identity.Keys(filepath.Join(string(y.keys), "planner")).TLS()
	y.must(err)
	y.connection = nats.Secure(secure)
	port, door := bustest.FreePort(t), bustest.FreePort(t)
	y.url, y.door = "nats://localhost:"+strconv.Itoa(port), "localhost:"+strconv.Itoa(door)
	o := Options{
		Config: filepath.Join(dir, "nats.conf"), Accounts: filepath.Join(dir, "accounts.conf"), Keys: identity.Keys(filepath.Join(string(y.keys), "bus")),
		Listen: "127.0.0.1:" + strconv.Itoa(door), Agent: agent,
	}
	y.must(os.WriteFile(o.Config, fmt.Appendf(nil, "host: 127.0.0.1, port: %d, jetstream {store_dir: %q, max_file_store: 1TB}\ntls {cert_file: %q, key_file: %q, ca_file: %q, verify: true}\ninclude accounts.conf\n",
		port, filepath.Join(dir, "data"), filepath.Join(string(o.Keys), "tls.crt"), filepath.Join(string(o.Keys), "tls.key"), filepath.Join(string(o.Keys), "ca.crt")), 0o600))
	scheme := metadatafake.NewTestScheme()
	y.must(errors.Join(metav1.AddMetaToScheme(scheme)))
	client := metadatafake.NewSimpleMetadataClient(scheme, node("n1"))
	nodes := client.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	y.nodes = nodes.(metadatafake.MetadataClient)
	api := fake.NewClientset()
	api.PrependReactor("create", "tokenreviews", func(a clienttest.Action) (bool, runtime.Object, error) {
		review := a.(clienttest.CreateAction).GetObject().(*authenticationv1.TokenReview)
		user, known := users()[review.Spec.Token]
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: known, User: user, Audiences: review.Spec.Audiences}
		return true, review, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	var running conc.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() {
		if err := Run(ctx, o, Kubernetes{nodes, kubetoken.New(api.AuthenticationV1().TokenReviews(), identity.TokenAudience, time.Now)}, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	y.until("the door is open", func() bool {
		c, err := net.Dial("tcp", y.door)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return y
}

func node(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func (y *yard) must(err error) {
	y.t.Helper()
	if err != nil {
		y.t.Fatal(err)
	}
}

func (y *yard) until(what string, holds func() bool) {
	y.t.Helper()
	ctx, cancel := context.WithTimeout(y.t.Context(), time.Minute)
	defer cancel()
	for range tick.Every(ctx, 20*time.Millisecond) {
		if holds() {
			return
		}
	}
	y.t.Fatalf("%s: not seen in time", what)
}

// ask shows a token, with the certificate of a service, and returns the answer.
func (y *yard) ask(token string) (status int, key identity.NodeKey) {
	y.t.Helper()
	secure, err := identity.Keys(filepath.Join(string(y.keys), identity.Agent)).TLS()
	y.must(err)
	request, err := http.NewRequestWithContext(y.t.Context(), http.MethodPost, "https://"+y.door+identity.NodeKeyPath, nil)
	y.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: secure}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(request)
	y.must(err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	y.must(err)
	if answer.StatusCode == http.StatusOK {
		y.must(json.Unmarshal(body, &key))
	} else {
		y.t.Logf("%q: %s", token, body)
	}
	return answer.StatusCode, key
}

// agentWorks gets the key of a node as an agent does, and connects with it.
func (y *yard) agentWorks(token string, node train.NodeID) {
	y.t.Helper()
	file, folder := filepath.Join(y.t.TempDir(), "token"), identity.Keys(filepath.Join(y.t.TempDir(), "keys"))
	y.must(os.WriteFile(file, []byte(token+"\n"), 0o600))
	door := nodekey.Door{URL: "https://" + y.door, Token: file, Certified: identity.Keys(filepath.Join(string(y.keys), identity.Agent))}
	y.must(door.Keep(y.t.Context(), node, folder, slog.New(slog.DiscardHandler)))
	b := bustest.ConnectWith(y.t, bus.Config{URL: y.url, Name: identity.Agent, Keys: string(folder)})
	if !b.OfNode() {
		y.t.Error("the agent is not in the account of its node")
	}
}

// speak connects with a key.
func (y *yard) speak(key identity.NodeKey) *nats.Conn {
	y.t.Helper()
	file := filepath.Join(y.t.TempDir(), "key")
	y.must(os.WriteFile(file, []byte(key.Seed), 0o600))
	option, err := nats.NkeyOptionFromSeed(file)
	y.must(err)
	nc, err := nats.Connect(y.url, option, y.connection, nats.CustomInboxPrefix(identity.InboxPrefix(identity.Node)), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	y.must(err)
	y.t.Cleanup(nc.Close)
	return nc
}

// refused reports whether the server refuses a message on a subject.
func (y *yard) refused(nc *nats.Conn, subject string) bool {
	y.t.Helper()
	y.must(errors.Join(nc.Publish(subject, []byte("{}")), nc.Flush()))
	err := nc.LastError()
	return err != nil && strings.Contains(err.Error(), `"`+subject+`"`)
}

// Each agent gets the key of the node on which its pod runs, and nobody else gets one. The key speaks for that node
// alone, whatever reply subject is used, also for nodes that come later.
func TestAnAgentGetsTheKeyOfItsNodeAlone(t *testing.T) {
	y := start(t)
	operator := bustest.ConnectWith(t, bus.Config{URL: y.url, Name: "operator", Keys: filepath.Join(string(y.keys), "operator")})
	y.must(operator.Ensure(t.Context()))
	for token, want := range map[string]int{"": 401, "made up": 403, "unbound": 403, "of a job": 403, "of n2": 403} {
		if got, _ := y.ask(token); got != want {
			t.Errorf("the token %q is answered with %d, want %d", token, got, want)
		}
	}
	status, first := y.ask("of n1")
	if status != http.StatusOK || first.Node != "n1" {
		t.Fatalf("the agent of n1 gets %d, %q", status, first.Node)
	}
	n1 := y.speak(first)
	y.agentWorks("of n1", "n1")

	_, err := y.nodes.CreateFake(node("n2"), metav1.CreateOptions{})
	y.must(err)
	status, second := y.ask("of n2")
	if status != http.StatusOK || second.Node != "n2" || second.Seed == first.Seed {
		t.Fatalf("the agent of n2 gets %d, %q", status, second.Node)
	}
	n2 := y.speak(second)
	for nc, own := range map[*nats.Conn]string{n1: "n1", n2: "n2"} {
		for _, id := range []string{"n1", "n2"} {
			for _, subject := range []string{"$KV.nodes." + id, "yard.energy." + id + ".measured.v1"} {
				if y.refused(nc, subject) != (id != own) {
					t.Errorf("the agent of %s publishes on %s: %v", own, subject, id != own)
				}
			}
		}
	}
	nodes, err := bus.OpenKV(t.Context(), operator, contract.Nodes)
	y.must(err)
	y.must(nodes.Put(t.Context(), "n2", train.Node{ID: "n2", Name: "its own"}))
	y.must(errors.Join(n1.PublishRequest("$JS.API.DIRECT.GET.KV_nodes.$KV.nodes.n1", "$KV.nodes.n2", nil), n1.PublishRequest("$KV.nodes.n1", "$KV.nodes.n2", []byte("{}"))))
	if _, err := n1.Request("$JS.API.STREAM.INFO.KV_nodes", nil, time.Minute); err != nil { // answered behind these
		t.Fatal(err)
	}
	if e, err := nodes.Get(t.Context(), "n2"); err != nil || e.Value.Name != "its own" {
		t.Errorf("the record of n2 is %+v, %v", e.Value, err)
	}
	if _, err := nats.Connect(y.url, y.connection, mustKey(t, filepath.Join(string(y.keys), identity.Agent, "nodeagent.nk"))); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("the key that all agents had: %v", err)
	}

	y.must(y.nodes.Delete(t.Context(), "n2", metav1.DeleteOptions{}))
	if status, _ := y.ask("of n3"); status != http.StatusForbidden { // which looks again
		t.Errorf("an agent on a node that is none gets %d", status)
	}
	y.until("the agent of a node that is gone is cut off", func() bool { return !n2.IsConnected() })
	if !n1.IsConnected() {
		t.Error("the agent of n1 is cut off, too")
	}
}

func mustKey(t *testing.T, file string) nats.Option {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(file)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// While the API server is away, the nodes that a server knew before it was started again have their accounts.
func TestNodesAreKnownWithoutTheAPIServer(t *testing.T) {
	keys := identity.Keys(t.TempDir())
	if err := keys.Deploy(identity.Deployment{Kubernetes: true}); err != nil {
		t.Fatal(err)
	}
	cluster, err := identity.Keys(filepath.Join(string(keys), "bus")).Cluster()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "accounts.conf")
	away := errors.New("away")
	begin := func(nodes []string, err error) string {
		t.Helper()
		m := &members{keys: cluster, file: file, list: func(context.Context) ([]string, error) { return nodes, err }, reload: func() error { return nil }, log: slog.New(slog.DiscardHandler)}
		if err := m.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if first := begin(nil, away); strings.Contains(first, "NODE_") || !strings.Contains(first, "# planner") {
		t.Errorf("at the first start:\n%s", first)
	}
	known := begin([]string{"n1"}, nil)
	if !strings.Contains(known, "NODE_n1 {") {
		t.Errorf("with a node:\n%s", known)
	}
	if again := begin(nil, away); again != known {
		t.Errorf("without the API server:\n%s", again)
	}
}
