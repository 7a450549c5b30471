package objects

import (
	"fmt"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// resource is the definition that the manifests have.
const resource = "../../../deploy/k8s/base/trainingjobs.yaml"

func trainingJob(name, spec string) string {
	return fmt.Sprintf("{apiVersion: switchyard.dev/v1alpha1, kind: TrainingJob, metadata: {name: %s, namespace: default}, spec: {%s}}", name, spec)
}

func TestAnObjectIsAJob(t *testing.T) {
	y := newYard(t)
	y.up()
	// It saves, and catches the signal by which a job is asked to leave.
	y.apply(trainingJob("first", `serviceAccountName: trainer, job: {command: [sh, -c, "trap 'exit 0' USR1; while :; do touch saved-1; sleep 0.1; done"], preempt: signal, checkpoint: "saved-*", priority: 40}`))
	y.until("the object runs", func() bool {
		return y.get("tj/first", "status.state") == "profiling" || y.get("tj/first", "status.state") == "running"
	})
	id := y.get("tj/first", "status.jobID")
	if j := y.job(id); !strings.HasPrefix(id, "first-") || j.User != "default.trainer" || j.Name != "first" {
		t.Errorf("the job %s is %+v", id, j)
	}
	table := columns(y.kubectl("get", "trainingjobs"))
	if table[0] != "NAME STATE REASON PROGRESS% FINISH DEVICES KWH AGE" || !strings.HasPrefix(table[1], "first ") {
		t.Errorf("kubectl get prints %q", table)
	}

	y.patch("tj/first", `{"job": {"priority": 70}}`)
	y.kubectl("wait", "tj/first", "--for=condition=Edited", "--timeout=60s")
	y.patch("tj/first", `{"job": {"max_epochs": 5}}`)
	y.until("a key that is fixed is refused", func() bool {
		return y.get("tj/first", `status.conditions[?(@.type=="Edited")].reason`) == "Fixed"
	})
	y.patch("tj/first", `{"suspend": true}`)
	y.kubectl("wait", "tj/first", "--for=condition=Suspended", "--timeout=60s")
	if j := y.job(id); j.State != train.StatePaused {
		t.Errorf("the suspended job is %s: %s", j.State, j.Message)
	}
	y.patch("tj/first", `{"suspend": false}`)
	y.until("the job goes on", func() bool { return y.job(id).State.Active() })
	y.kubectl("delete", "tj/first", "--timeout=60s")
	y.until("the job ends with its object", func() bool { return y.job(id).State == train.StateCancelled })

	y.apply(trainingJob("later", `suspend: true, job: {command: ["true"]}`))
	y.until("the object waits", func() bool { return y.get("tj/later", "status.state") == "suspended" })
	if id := y.get("tj/later", "status.jobID"); id != "" {
		t.Errorf("a suspended object has the job %s", id)
	}
	y.patch("tj/later", `{"suspend": false}`)
	y.kubectl("wait", "tj/later", "--for=condition=Complete", "--timeout=60s")
}

func TestARefusedObjectSaysWhy(t *testing.T) {
	y := newYard(t)
	// Objects may be there before Switchyard is.
	y.apply(trainingJob("senseless", `job: {command: [sleep, "60"], batch_size: -1}`))
	y.apply(trainingJob("nameless", `serviceAccountName: `+strings.Repeat("long", 15)+`, job: {command: [sleep, "60"]}`))
	for manifest, want := range map[string]string{
		trainingJob("wrong", `job: {command: ["true"], user: root}`): `unknown field "spec.job.user"`,
		trainingJob("wrong", `job: {command: "true"}`):               "must be of type array",
		trainingJob("wrong", `suspend: true`):                        "spec.job: Required value",
	} {
		if _, err := cluster.Feed(y.ctx, manifest, "apply", "-f", "-"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the API server answers %v, want %s", err, want)
		}
	}
	y.up()
	// What is too large for a cluster waits for one that nobody knows yet.
	y.until("admission knows the node", func() bool {
		out, err := y.switchyard("submit", "--dry-run", "--min-devices", "99", "--max-devices", "99", "--", "sleep", "60").CombinedOutput()
		return err != nil && strings.Contains(string(out), "want at least 99")
	})
	y.apply(trainingJob("huge", `job: {command: [sleep, "60"], min_devices: 99, max_devices: 99}`))
	if _, err := cluster.Kubectl(y.ctx, "patch", "tj/huge", "--type=merge", "-p", `{"spec": {"serviceAccountName": "root"}}`); err == nil {
		t.Error("an object changes whose job it is")
	}
	for name, reason := range map[string]string{"huge": "TooFewDevices", "nameless": "NoName"} {
		y.until(name+" is rejected", func() bool { return y.get("tj/"+name, "status.state") == "rejected" })
		accepted := y.get("tj/"+name, `status.conditions[?(@.type=="Accepted")].status`)
		if got := y.get("tj/"+name, "status.reason"); got != reason || accepted != "False" || y.get("tj/"+name, "status.message") == "" {
			t.Errorf("%s is rejected for %s, accepted %s", name, got, accepted)
		}
	}
	y.until("senseless is rejected", func() bool { return strings.Contains(y.get("tj/senseless", "status.message"), "batch_size") })

	y.patch("tj/huge", `{"job": {"min_devices": 1, "max_devices": 1}}`)
	y.until("what is corrected runs", func() bool {
		return strings.HasSuffix(y.get("tj/huge", "status.jobID"), "-2") && y.get("tj/huge", "status.devices") == "1"
	})
	y.kubectl("delete", "tj", "--all", "--timeout=60s")
}
