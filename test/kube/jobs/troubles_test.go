package jobs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// awaitReason waits until a fact about a job has a reason, which describe must show.
func (y *yard) awaitReason(id train.JobID, reason, words string) {
	y.t.Helper()
	y.job(id, "has reason "+reason, func(j train.Job) bool {
		return slices.ContainsFunc(j.History, func(c train.Change) bool { return c.Reason == reason && strings.Contains(c.Message, words) })
	})
	if out := y.describe(id); !strings.Contains(out, words) {
		y.t.Errorf("describe does not say %q:\n%s", words, out)
	}
}

// A job that cannot run as it is fails, with the reason.
func TestJobsThatCannotRun(t *testing.T) {
	y := newYard(t, "--pod-memory-limit=300Mi")
	none := 0
	y.submit("imageless", 3, 1, func(s *train.Spec) { s.Image = "localhost/nobody/has:this" })
	y.submit("programless", 3, 1, func(s *train.Spec) { s.Command = []string{"/no/such/program"} })
	y.plan(on("imageless", "gpu:0"), on("programless", "gpu:1"))
	y.state("imageless", train.StateFailed)
	y.awaitReason("imageless", "ImageMissing", "localhost/nobody/has:this is not on node node1")
	y.state("programless", train.StateFailed)
	y.awaitReason("programless", "NotStarted", "/no/such/program")
	y.submit("greedy", 3, 1, func(s *train.Spec) {
		s.Command, s.MaxRestarts = []string{"/trainer", "-hidden", "6000", "-features", "6000"}, &none
	})
	y.submit("wrong", 3, 1, func(s *train.Spec) { s.Command = []string{"/trainer", "-hidden", "-1"} })
	y.plan(on("greedy", "gpu:0"), on("wrong", "gpu:1"))
	y.state("greedy", train.StateFailed)
	y.awaitReason("greedy", "OutOfMemory", "ran out of main memory: the limit is 300Mi")
	y.state("wrong", train.StateFailed)
	y.awaitReason("wrong", "ExitStatus", "")
	y.nothingLeft()
}

// A job whose pod is taken away continues from its checkpoint, with the reason.
func TestPodsThatAreTakenAway(t *testing.T) {
	y := newYard(t)
	y.submit("deleted", 30, 4, nil)
	y.submit("evicted", 30, 4, nil)
	y.plan(on("deleted", "gpu:0"), on("evicted", "gpu:1"))
	y.job("deleted", "two epochs", epochs(2))
	y.job("evicted", "two epochs", epochs(2))
	y.kubectl("delete", "pod", "deleted-1-0", "-n", y.namespace, "--wait=false")
	y.must(y.client().CoreV1().Pods(y.namespace).EvictV1(y.ctx,
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "evicted-1-0"}}))
	y.awaitReason("deleted", "PodDeleted", "deleted-1-0 was deleted by another client")
	y.awaitReason("evicted", "Evicted", "evicted-1-0 was evicted: EvictionByEvictionAPI")
	for _, id := range []train.JobID{"deleted", "evicted"} {
		y.state(id, train.StateSucceeded)
		if at := y.ledger(id).Began(2); at < 2 {
			t.Errorf("job %s began again after epoch %d, want its checkpoint", id, at)
		}
	}
	// The kubelet's own eviction: of a pod that writes more into its container than allowed.
	y.apply(`{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"small"},"spec":{"limits":[{"type":"Container","default":{"ephemeral-storage":"8Ki"}}]}}`)
	y.submit("bulky", 400, 4, func(s *train.Spec) { s.Env["TRAIN_LEDGER"] = "/ledger" })
	y.plan(on("bulky", "gpu:0"))
	y.running("bulky", 1)
	y.kubectl("delete", "limitrange", "small", "-n", y.namespace)
	y.awaitReason("bulky", "Evicted", "node node1 evicted the pod: ")
	y.cancel("bulky")
	y.nothingLeft()
}

// A pod that cannot start waits with the reason, and costs its job no restart.
func TestPodsThatCannotStart(t *testing.T) {
	exported := t.TempDir()
	y := newYard(t, "--pod-schedule-limit=3s", "--pod-start-limit=6s", "--pod-volume-root="+exported+"=nfs:127.0.0.1:/exported")
	y.crowded()
	// Admission checks here; the node asks the server, which does not exist.
	y.must(os.Mkdir(filepath.Join(exported, "mnist"), 0o700))
	y.submit("unmounted", 3, 1, func(s *train.Spec) { s.DatasetsDir = filepath.Join(exported, "mnist") })
	y.plan(on("unmounted", "gpu:0"))
	y.until("its volume", func() bool {
		out, err := y.cluster.Kubectl(y.ctx, "get", "pods", "-n", y.namespace, "-l", "switchyard.dev/job=unmounted",
			"-o", `jsonpath={.items[*].spec.volumes[?(@.name=="datasets")].nfs}`)
		return err == nil && strings.Contains(out, `"path":"/exported/mnist"`)
	})
	y.awaitReason("unmounted", "GangIncomplete", "1 of 1 pods did not run after 6s")
	if j := y.job("unmounted", "FailedMount", func(j train.Job) bool { return strings.Contains(fmt.Sprint(j.History), "FailedMount") }); j.Recoveries > 0 {
		t.Errorf("a folder that cannot be mounted counts as %d recoveries", j.Recoveries)
	}
	y.cancel("unmounted")
	y.nothingLeft()
}

// crowded takes a device without the planner's knowledge.
func (y *yard) crowded() {
	y.t.Helper()
	node, err := y.node()
	y.must(err)
	squatter := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"squatter"},"spec":{"containers":[{"name":"c","image":%q,"imagePullPolicy":"Never",
		"command":["/trainer","-hidden","8"],"env":[{"name":"EPOCHS_TO_BE_DONE","value":"100000000"},{"name":"TRAINING_SET_SIZE","value":"100"},{"name":"BATCH_SIZE","value":"10"},
		{"name":"JOB_UUID","value":"x"},{"name":"SWITCHYARD_SNAPSHOTS_DIR","value":"/tmp"}],"resources":{"limits":{%q:"1"}}}]}}`, image, node.Devices[0].Resource)
	y.apply(squatter)
	y.until("the squatter has its unit", func() bool {
		return y.kubectl("get", "pod", "squatter", "-n", y.namespace, "-o", "jsonpath={.spec.nodeName}") == "node1"
	})
	y.submit("crowded", 3, 1, nil)
	y.plan(on("crowded", "gpu:0"))
	j := y.job("crowded", "the reason", func(j train.Job) bool {
		return slices.ContainsFunc(j.History, func(c train.Change) bool {
			return strings.Contains(c.Message, "Insufficient "+node.Devices[0].Resource)
		})
	})
	if j.Recoveries > 0 {
		y.t.Errorf("a pod without room counts as %d recoveries", j.Recoveries)
	}
	y.kubectl("delete", "pod", "squatter", "-n", y.namespace, "--grace-period=0", "--force")
	y.state("crowded", train.StateSucceeded)
}

// The API server is away for half a minute: running pods continue, planned ones start afterwards, and nothing is done
// twice.
func TestAPIServerAway(t *testing.T) {
	y := newYard(t)
	y.submit("before", 100, 4, nil)
	y.submit("during", 3, 1, nil)
	y.plan(on("before", "gpu:0"))
	y.job("before", "an epoch", epochs(1))
	y.devcluster("stop", "kube-apiserver")
	back := time.NewTimer(30 * time.Second)
	y.plan(on("before", "gpu:0"), on("during", "gpu:1"))
	select {
	case <-back.C:
	case <-y.ctx.Done():
	}
	y.devcluster("start", "kube-apiserver")
	for _, id := range []train.JobID{"before", "during"} {
		if j := y.state(id, train.StateSucceeded); j.Attempt != 1 {
			t.Errorf("%s took %d attempts, want one: %s", id, j.Attempt, j.Message)
		}
		y.ledger(id)
	}
	y.nothingLeft()
}

// faulty is a proxy between the executor and the API server.
type faulty struct {
	forward  *httputil.ReverseProxy
	refusing atomic.Bool
	refused  atomic.Int64
	// toLose is the number of further creations of pods to carry out without an answer.
	toLose atomic.Int64
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.refusing.Load() {
		f.refused.Add(1)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods") && f.toLose.Add(-1) >= 0 {
		f.forward.ServeHTTP(unheard{w}, r)
		panic(http.ErrAbortHandler)
	}
	f.forward.ServeHTTP(w, r)
}

// unheard is an answer that does not arrive.
type unheard struct{ http.ResponseWriter }

func (unheard) WriteHeader(int)             {}
func (unheard) Write(p []byte) (int, error) { return len(p), nil }

// startFaulty starts a proxy and returns the kubeconfig for it.
func startFaulty(t *testing.T) (*faulty, string) {
	t.Helper()
	if cluster == nil {
		t.Skip("DEVCLUSTER names no program that starts a cluster (make e2e-kube does)")
	}
	config, err := cluster.Config()
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{forward: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1}}
	server := httptest.NewServer(f)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	path := filepath.Join(t.TempDir(), "kubeconfig")
	through := clientcmdapi.NewConfig()
	through.Clusters["it"] = &clientcmdapi.Cluster{Server: server.URL}
	through.Contexts["it"] = &clientcmdapi.Context{Cluster: "it"}
	through.CurrentContext = "it"
	if err := clientcmd.WriteToFile(*through, path); err != nil {
		t.Fatal(err)
	}
	return f, path
}

// The API server refuses everything for a while, then an answer is lost: running pods continue, planned ones start
// afterwards, and nothing is done twice.
func TestAPIServerOverloaded(t *testing.T) {
	f, kubeconfig := startFaulty(t)
	y := newYard(t, "--kubeconfig="+kubeconfig)
	y.submit("before", 60, 4, nil)
	y.submit("during", 3, 1, nil)
	y.plan(on("before", "gpu:0"))
	y.job("before", "an epoch", epochs(1))
	f.refusing.Store(true)
	y.plan(on("before", "gpu:0"), on("during", "gpu:1"))
	y.until("refusals", func() bool { return f.refused.Load() >= 8 })
	f.toLose.Store(1)
	f.refusing.Store(false)
	for _, id := range []train.JobID{"before", "during"} {
		if j := y.state(id, train.StateSucceeded); j.Attempt != 1 {
			t.Errorf("%s took %d attempts, want one: %s", id, j.Attempt, j.Message)
		}
		y.ledger(id)
	}
	if f.toLose.Load() > 0 {
		t.Error("no answer was lost")
	}
	y.nothingLeft()
}
