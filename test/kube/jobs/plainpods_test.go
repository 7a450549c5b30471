package jobs

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/test/kube/lab"
)

// word is what schedulers show.
const word = "word-of-the-test"

// pauseImage is on the node of every development cluster.
const pauseImage = "localhost/switchyard/pause:dev"

// askingScheduler starts web and a second scheduler of Kubernetes, with the configuration of the manifests, that asks
// web.
func (y *yard) askingScheduler() {
	y.t.Helper()
	web := "127.0.0.1:" + strconv.Itoa(bustest.FreePort(y.t))
	y.extender = web
	secret, path := filepath.Join(y.dir, "word"), filepath.Join(y.dir, "scheduler.yaml")
	y.must(os.WriteFile(secret, []byte(word+"\n"), 0o600))
	text, err := os.ReadFile("../../../deploy/k8s/components/plainpods/config.yaml")
	y.must(err)
	config := strings.NewReplacer(
		"extender.switchyard.svc:7471", web, "/WORD", "/"+word, "resourceNamespace: switchyard,", "resourceNamespace: kube-system,",
	).Replace(string(text)) + fmt.Sprintf("clientConnection: {kubeconfig: %q}\n", y.cluster.Kubeconfig())
	y.must(os.WriteFile(path, []byte(config), 0o600))
	y.web = []string{"--web-listen=", "--web-extender=" + web, "--web-extender-secret=" + secret}
	y.start("web")
	log, err := os.Create(filepath.Join(y.dir, "scheduler.log"))
	y.must(err)
	defer log.Close()
	cmd := exec.Command(lab.Program(), "kube-scheduler", "--config", path, "--secure-port", strconv.Itoa(bustest.FreePort(y.t)),
		"--authentication-kubeconfig", y.cluster.Kubeconfig(), "--authorization-kubeconfig", y.cluster.Kubeconfig())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	y.must(cmd.Start())
	y.procs["scheduler"] = cmd
}

// plainPod makes a pod that belongs to no job and asks for memory of any GPU.
func (y *yard) plainPod(name string, gib int) {
	y.t.Helper()
	_, err := y.cluster.Feed(y.ctx, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "namespace": %q}, "spec": {
		"schedulerName": "switchyard-scheduler", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": %q, "imagePullPolicy": "Never",
		"resources": {"limits": {%q: "%d"}}}]}}`, name, y.plain(), pauseImage, train.PodMemoryResource, gib), "apply", "-f", "-")
	y.must(err)
}

func (y *yard) podIs(name, phase string) {
	y.t.Helper()
	y.until("pod "+name+" is "+phase, func() bool {
		out, err := y.cluster.Kubectl(y.ctx, "get", "pod", name, "-n", y.plain(), "-o", "jsonpath={.status.phase}")
		return err == nil && out == phase
	})
}

// booked waits until the record of a pod's memory fits.
func (y *yard) booked(name, what string, fits func(train.PlacedPod, bool) bool) train.PlacedPod {
	y.t.Helper()
	kv, err := bus.OpenKV(y.ctx, y.bus, contract.PlacedPods)
	y.must(err)
	var found train.PlacedPod
	y.until("memory of "+name+": "+what, func() bool {
		entries, err := kv.List(y.ctx)
		there := false
		for _, e := range entries {
			if e.Value.Pod.Name == name {
				found, there = e.Value, true
			}
		}
		return err == nil && fits(found, there)
	})
	return found
}

// Pods of no job ask for memory of any GPU, and the cluster's scheduler asks the planner. They share a GPU with a job
// that allows it; neither they nor a job get memory that is taken, and it comes back when a pod has ended.
func TestPodsOfNoJobShareGPUs(t *testing.T) {
	const endless = 1_000_000
	y := newYardOffering(t, []string{"--plain-pods=true"})
	y.kubectl("create", "namespace", y.plain())
	t.Cleanup(func() {
		_, _ = y.cluster.Kubectl(context.Background(), "delete", "namespace", y.plain(), "--wait=false")
	})
	y.start("planner")
	y.askingScheduler()
	y.submit("whole", endless, 4, func(s *train.Spec) { s.MaxDevices = 1 })
	whole := y.running("whole", 1)
	y.submit("sharing", endless, 4, func(s *train.Spec) {
		s.MaxDevices, s.AllowSharing, s.ShareAcrossTenants, s.EstimatedMemoryMiB = 1, true, true, 6<<10
	})
	sharing := y.running("sharing", 1)

	y.plainPod("notebook", 8)
	y.podIs("notebook", "Running")
	notebook := y.booked("notebook", "the agent sees it", func(p train.PlacedPod, there bool) bool { return there && !p.SeenAt.IsZero() })
	if notebook.Device != sharing.Devices[0] || notebook.Device == whole.Devices[0] {
		t.Errorf("the pod is on %s, want it beside the job on %v", notebook.Device, sharing.Devices)
	}

	y.refusesAtTheExtender()

	// 2 GiB are left there: another pod waits, and says why; so does a job.
	y.plainPod("second", 4)
	y.until("the second pod says why it waits", func() bool {
		out := y.kubectl("get", "pod", "second", "-n", y.plain(), "-o", `jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}`)
		return strings.Contains(out, "Switchyard: the pod waits") && strings.Contains(out, "2.0 GiB")
	})
	y.submit("third", 3, 1, func(s *train.Spec) {
		s.MaxDevices, s.AllowSharing, s.ShareAcrossTenants, s.EstimatedMemoryMiB = 1, true, true, 4<<10
	})
	y.job("third", "waits", func(j train.Job) bool { return j.Reason == "WaitingForMemory" || j.Reason == "SlowTogether" })

	y.kubectl("delete", "pod", "notebook", "-n", y.plain())
	y.booked("notebook", "is given back", func(_ train.PlacedPod, there bool) bool { return !there })
	y.podIs("second", "Running")
	for _, id := range []train.JobID{"whole", "sharing", "third"} {
		y.cancel(id)
	}
	y.nothingLeft()
}

// refusesAtTheExtender asks without the word of schedulers, and makes a pod that no scheduler has asked about.
func (y *yard) refusesAtTheExtender() {
	y.t.Helper()
	ask := func(method, path, body string) int {
		request, err := http.NewRequestWithContext(y.ctx, method, "http://"+y.extender+path, strings.NewReader(body))
		y.must(err)
		answer, err := http.DefaultClient.Do(request)
		y.must(err)
		y.must(answer.Body.Close())
		return answer.StatusCode
	}
	const question = `{"Pod": {"metadata": {"name": "forged", "namespace": "default", "uid": "u"}}, "NodeNames": ["node1"]}`
	for path, want := range map[string]int{
		"/filter": http.StatusNotFound, "//filter": http.StatusNotFound, "/guess/filter": http.StatusNotFound, "/" + word + "/bind": http.StatusNotFound, "/" + word + "/prioritize": http.StatusNotFound, "/" + word: http.StatusNotFound,
		"/api/v1/jobs": http.StatusNotFound,
	} {
		if got := ask(http.MethodPost, path, question); got != want {
			y.t.Errorf("a question at %s is answered with %d, want %d", path, got, want)
		}
	}
	if got := ask(http.MethodGet, "/"+word+"/filter", ""); got != http.StatusNotFound {
		y.t.Errorf("a GET is answered with %d", got)
	}
	if got := ask(http.MethodPost, "/"+word+"/filter", "["); got != http.StatusBadRequest {
		y.t.Errorf("what is no question is answered with %d", got)
	}
	// It names its node, so no scheduler sees it, and nothing is booked.
	_, err := y.cluster.Feed(y.ctx, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "unasked", "namespace": %q}, "spec": {"nodeName": "node1", "restartPolicy": "Never",
		"containers": [{"name": "main", "image": %q, "imagePullPolicy": "Never", "resources": {"limits": {%q: "2"}}}]}}`, y.plain(), pauseImage, train.PodMemoryResource), "apply", "-f", "-")
	y.must(err)
	y.podIs("unasked", "Failed")
	if reason := y.kubectl("get", "pod", "unasked", "-n", y.plain(), "-o", "jsonpath={.status.reason}"); reason != "UnexpectedAdmissionError" {
		y.t.Errorf("the kubelet refuses the pod for %q", reason)
	}
}

func (y *yard) plain() string { return y.namespace + "-plain" }
