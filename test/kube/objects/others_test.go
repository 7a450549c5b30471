package objects

import (
	"fmt"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// saving is a program that saves, and catches the signal by which a job is asked to leave.
const saving = `command: [sh, -c, "trap 'exit 0' USR1; while :; do touch saved-1; sleep 0.1; done"]`

func trainJob(name, group, spec string) string {
	return fmt.Sprintf(`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: %s, namespace: default,
		annotations: {switchyard.dev/job: '{preempt: signal, checkpoint: "saved-*", device: cpu}'}},
		spec: {runtimeRef: {apiGroup: %s, kind: Runtime, name: default}, %s}}`, name, group, spec)
}

// A TrainJob of Kubeflow, by its published definition, that names our runtime is a job: conditions, progress and
// suspend are those that it knows. One of another runtime is left alone.
func TestATrainJobOfKubeflowIsAJob(t *testing.T) {
	y := newYard(t)
	y.up()
	y.apply(trainJob("theirs", "trainer.kubeflow.org", "trainer: {"+saving+"}"))
	y.apply(trainJob("ours", "switchyard.dev", "trainer: {"+saving+", numNodes: 1, env: [{name: LR, value: '0.1'}]}"))
	y.kubectl("wait", "trainjob/ours", "--for=condition=Accepted", "--timeout=60s")
	y.until("the job is active", func() bool { return y.get("trainjob/ours", "status.jobsStatus[0].active") == "1" })
	id := "ours-" + strings.ReplaceAll(y.get("trainjob/ours", "metadata.uid"), "-", "")[:8]
	if j := y.job(id); j.User != "default.default" || j.Name != "ours" {
		t.Errorf("the job %s is %+v", id, j)
	}

	y.patch("trainjob/ours", `{"suspend": true}`)
	y.kubectl("wait", "trainjob/ours", "--for=condition=Suspended", "--timeout=60s")
	if j := y.job(id); j.State != train.StatePaused {
		t.Errorf("the suspended job is %s: %s", j.State, j.Message)
	}
	y.patch("trainjob/ours", `{"suspend": false}`)
	y.until("the job goes on", func() bool { return y.job(id).State.Active() })
	y.kubectl("delete", "trainjob/ours", "--timeout=60s")
	y.until("the job ends with its object", func() bool { return y.job(id).State == train.StateCancelled })

	y.apply(trainJob("short", "switchyard.dev", `trainer: {command: ["true"]}`))
	y.kubectl("wait", "trainjob/short", "--for=condition=Complete", "--timeout=60s")
	y.apply(trainJob("wide", "switchyard.dev", `trainer: {command: [sleep, "60"], numNodes: 99}`))
	y.kubectl("wait", "trainjob/wide", "--for=condition=Failed", "--timeout=60s")
	y.apply(trainJob("fetches", "switchyard.dev", `initializer: {dataset: {storageUri: "hf://a/b"}}, trainer: {command: ["true"]}`))
	y.kubectl("wait", "trainjob/fetches", "--for=condition=Failed", "--timeout=60s")
	for name, reason := range map[string]string{"wide": "TooFewDevices", "fetches": "Unsupported"} {
		if got := y.get("trainjob/"+name, `status.conditions[?(@.type=="Failed")].reason`); got != reason {
			t.Errorf("%s is refused for %q, want %s", name, got, reason)
		}
	}
	if got := y.get("trainjob/theirs", "status") + y.get("trainjob/theirs", "metadata.finalizers"); got != "" {
		t.Errorf("a TrainJob of another runtime has %s", got)
	}
	y.kubectl("delete", "trainjobs", "--all", "--timeout=60s")
}

// The test plays Kueue, which decides about objects with the label of a queue: none runs before suspend is false, one
// that is evicted leaves by its checkpoint, and goes on from there where the queue sends it next.
func TestAQueueDecidesWhenAnObjectRuns(t *testing.T) {
	y := newYard(t)
	y.up()
	queued := func(name, spec string) string {
		return strings.Replace(trainingJob(name, spec), "namespace: default", "namespace: default, labels: {kueue.x-k8s.io/queue-name: vision}", 1)
	}
	y.apply(queued("first", "job: {"+saving+`, preempt: signal, checkpoint: "saved-*"}`))
	y.apply(queued("second", `job: {command: ["true"]}`))
	for _, name := range []string{"first", "second"} {
		y.kubectl("wait", "tj/"+name, "--for=condition=Suspended", "--timeout=60s")
		if id := y.get("tj/"+name, "status.jobID"); id != "" || y.get("tj/"+name, "spec.suspend") != "true" {
			t.Errorf("%s has the job %q before its queue admits it", name, id)
		}
	}

	y.patch("tj/first", `{"suspend": false, "job": {"node_labels": {"flavor": "spot"}}}`)
	y.until("it runs on the nodes of its flavor", func() bool { return y.job(y.get("tj/first", "status.jobID")).State.Active() })
	id := y.get("tj/first", "status.jobID")
	y.patch("tj/first", `{"suspend": true}`)
	y.kubectl("wait", "tj/first", "--for=condition=Suspended", "--timeout=60s")
	if j := y.job(id); j.State != train.StatePaused {
		t.Errorf("the evicted job is %s: %s", j.State, j.Message)
	}
	y.patch("tj/second", `{"suspend": false}`)
	y.kubectl("wait", "tj/second", "--for=condition=Complete", "--timeout=60s")
	y.patch("tj/first", `{"suspend": false}`)
	y.until("it goes on", func() bool { return y.job(id).State.Active() })
	y.kubectl("delete", "tj", "--all", "--timeout=60s")
}
