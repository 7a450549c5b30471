package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	resourcev1 "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/identity"
)

// givesNodesTheirKeys checks what a node that was taken over can do: with what its agent has, and with what its kubelet
// may ask the API server for.
func (s *site) givesNodesTheirKeys() {
	s.t.Helper()
	pod := s.kubectl("-n", "switchyard-nodes", "get", "pods", "-l", "app.kubernetes.io/name=nodeagent", "-o", "jsonpath={.items[0].metadata.name}")
	uid := s.kubectl("-n", "switchyard-nodes", "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	bound := []string{"--bound-object-kind=Pod", "--bound-object-name=" + pod, "--bound-object-uid=" + uid}
	token := func(account, namespace, audience string, flags ...string) string {
		return s.kubectl(append([]string{"-n", namespace, "create", "token", account, "--audience=" + audience}, flags...)...)
	}
	for what, shown := range map[string]string{
		"a token that is bound to no pod":     token("nodeagent", "switchyard-nodes", identity.TokenAudience),
		"a token for another audience":        token("nodeagent", "switchyard-nodes", "switchyard", bound...),
		"the token of the executor":           token("executor", "switchyard", identity.TokenAudience),
		"the token of a pod of a tenant":      token("default", "switchyard-jobs", identity.TokenAudience),
		"the token of an agent of no account": "made-up",
	} {
		if status, _ := s.nodeKey(shown); status != http.StatusForbidden {
			s.t.Errorf("%s is answered with %d", what, status)
		}
	}
	status, key := s.nodeKey(token("nodeagent", "switchyard-nodes", identity.TokenAudience, bound...))
	if status != http.StatusOK || key.Node != "node1" {
		s.t.Fatalf("the agent gets %d, the key of %q", status, key.Node)
	}
	s.speaksForNode1Alone(key)
	s.node1AsksForAnother()
	s.offersItsOwnGPUs()
}

// speaksForNode1Alone checks what the key of a node can do on the bus.
func (s *site) speaksForNode1Alone(key identity.NodeKey) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "stolen")
	s.must(os.WriteFile(file, []byte(key.Seed), 0o600))
	option, err := nats.NkeyOptionFromSeed(file)
	s.must(err)
	nc, err := nats.Connect(s.at.URL, append(s.at.Options, option, nats.CustomInboxPrefix(identity.InboxPrefix(identity.Node)), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	s.must(err)
	defer nc.Close()
	for subject, may := range map[string]bool{
		"$JS.API.STREAM.INFO.KV_nodes": true, "$KV.nodes.node2": false, "$KV.paths.node2": false, "yard.energy.node2.measured.v1": false, "yard.probe.node2.counted.v1": false, "$KV.jobs.x": false, "$KV.attempts.x": false,
		"yard.job.x.failed.v1": false, "yard.job.x.submitted.v1": false, "$JS.API.STREAM.DELETE.JOBS": false, "$JS.API.DIRECT.GET.KV_jobs": false, "$JS.API.CONSUMER.CREATE.JOBS": false, "$SYS.REQ.SERVER.PING": false,
	} {
		s.must(errors.Join(nc.Publish(subject, []byte("{}")), nc.Flush()))
		said := nc.LastError()
		if refused := said != nil && strings.Contains(said.Error(), `"`+subject+`"`); refused == may {
			s.t.Errorf("the key of node1 publishes on %s: %v, want %v", subject, !refused, may)
		}
	}
	s.must(errors.Join(nc.PublishRequest("$JS.API.DIRECT.GET.KV_nodes.$KV.nodes.node1", "$KV.nodes.node2", nil), nc.PublishRequest("$JS.API.STREAM.INFO.KV_nodes", "$KV.nodes.node2", nil)))
	_, err = nc.Request("$JS.API.STREAM.INFO.KV_nodes", nil, time.Minute) // answered behind these
	s.must(err)
	nodes, err := bus.OpenKV(s.ctx, s.bus, contract.Nodes)
	s.must(err)
	if e, err := nodes.Get(s.ctx, "node2"); !errors.Is(err, bus.ErrNotFound) {
		s.t.Errorf("the key of node1 writes, by a reply subject, the record of node2: %+v, %v", e, err)
	}
	shared := filepath.Join(filepath.Dir(s.at.Keys), identity.Agent, identity.Agent+".nk")
	old, err := nats.NkeyOptionFromSeed(shared)
	s.must(err)
	if nc, err := nats.Connect(s.at.URL, append(s.at.Options, old)...); !errors.Is(err, nats.ErrAuthorization) {
		nc.Close()
		s.t.Errorf("a key of all agents: %v", err)
	}
}

// node1AsksForAnother asks the API server, as the kubelet of node1, for the token of an agent's pod on another node.
func (s *site) node1AsksForAnother() {
	s.t.Helper()
	const elsewhere = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "elsewhere", "namespace": "switchyard-nodes"}, "spec": {"nodeName": "node2", "serviceAccountName": "nodeagent", "containers": [{"name": "x", "image": "x"}]}}`
	_, err := cluster.Feed(s.ctx, elsewhere, "create", "-f", "-")
	s.must(err)
	defer s.kubectl("-n", "switchyard-nodes", "delete", "pod", "elsewhere", "--force", "--grace-period=0", "--ignore-not-found")
	out, err := cluster.Kubectl(s.ctx, "-n", "switchyard-nodes", "create", "token", "nodeagent", "--audience="+identity.TokenAudience, "--bound-object-kind=Pod", "--bound-object-name=elsewhere",
		"--as=system:node:node1", "--as-group=system:nodes", "--as-group=system:authenticated")
	if err == nil || !strings.Contains(err.Error(), "forbidden") {
		s.t.Errorf("the kubelet of node1 gets a token of a pod on node2: %s, %v", out, err)
	}
}

// nodeKey shows a token where agents get the keys of their nodes, with the certificate that they have.
func (s *site) nodeKey(token string) (status int, key identity.NodeKey) {
	s.t.Helper()
	secure, err := identity.Keys(filepath.Join(filepath.Dir(s.at.Keys), identity.Agent)).TLS()
	s.must(err)
	secure.ServerName = "bus.switchyard.svc"
	at, err := url.Parse(strings.Split(s.at.URL, ",")[0])
	s.must(err)
	request, err := http.NewRequestWithContext(s.ctx, http.MethodPost, fmt.Sprintf("https://%s:4223%s", at.Hostname(), identity.NodeKeyPath), nil)
	s.must(err)
	request.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{TLSClientConfig: secure}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(request)
	s.must(err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	s.must(err)
	if answer.StatusCode == http.StatusOK {
		s.must(json.Unmarshal(body, &key))
	}
	return answer.StatusCode, key
}

// offersItsOwnGPUs tries to offer devices in the name of another node or driver, as the agent of node1.
func (s *site) offersItsOwnGPUs() {
	s.t.Helper()
	config, err := cluster.Config()
	s.must(err)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:switchyard-nodes:nodeagent", Groups: []string{"system:serviceaccounts", "system:authenticated"},
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"node1"}},
	}
	client, err := kubernetes.NewForConfig(config)
	s.must(err)
	for what, try := range map[string]struct {
		driver, node string
		may          bool
	}{
		"its own":          {"gpu.switchyard.dev", "node1", true},
		"of another node":  {"gpu.switchyard.dev", "node2", false},
		"another driver's": {"gpu.nvidia.com", "node1", false},
	} {
		slice := &resourcev1.ResourceSlice{
			ObjectMeta: meta.ObjectMeta{Name: "forged"},
			Spec:       resourcev1.ResourceSliceSpec{Driver: try.driver, NodeName: &try.node, Pool: resourcev1.ResourcePool{Name: try.node, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-9"}}},
		}
		_, err := client.ResourceV1().ResourceSlices().Create(s.ctx, slice, meta.CreateOptions{DryRun: []string{meta.DryRunAll}})
		if refused := err != nil && strings.Contains(err.Error(), "offers the GPUs of its own node alone"); refused == try.may || try.may && err != nil {
			s.t.Errorf("the agent of node1 offers GPUs %s: %v", what, err)
		}
	}
}
