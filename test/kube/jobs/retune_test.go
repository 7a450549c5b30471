package jobs

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// wisher plays an experiment with a job as its trial.
type experimenter struct {
	*yard
	job        train.JobID
	began      time.Time
	wishes     *bus.KV[train.Setting]
	generation uint64
	wanted     map[string]float64
}

func (y *yard) experimenter(job train.JobID) *experimenter {
	y.t.Helper()
	wishes, err := bus.OpenKV(y.ctx, y.bus, contract.Settings)
	y.must(err)
	return &experimenter{yard: y, job: job, began: time.Now(), wishes: wishes}
}

// wish changes the desired values.
func (w *experimenter) request(values map[string]float64) {
	w.t.Helper()
	w.generation++
	w.wanted = values
	_, err := w.wishes.Modify(w.ctx, string(w.job), func(s *train.Setting) (bool, error) {
		*s = train.Setting{Job: w.job, Experiment: "e", Generation: w.generation, Values: values}
		return true, nil
	})
	w.must(err)
}

// applied waits for the result of the newest wish.
func (w *experimenter) applied() train.Applied {
	w.t.Helper()
	var found train.Applied
	w.until("the executor reports what the pod has", func() bool {
		settled := false
		subject := event.Subject{Entity: "tune", ID: "e", Fact: event.FactRetuned, Version: 1}.String()
		w.must(w.bus.Stored(w.ctx, event.StreamTune, []string{subject}, w.began, func(m bus.Message) {
			b, err := event.Decode[event.Retuned](m.Data)
			if err == nil && b.Generation == w.generation && len(b.Pending(w.wanted)) == 0 {
				found, settled = b.Applied, true
			}
		}))
		return settled
	})
	return found
}

// A pod is created with the cores and the memory of its trial and gets others while it trains: from the kubelet,
// without a restart. Values beyond its node's are refused. For other devices it restarts, with the plan that gives
// them.
func TestARunningPodIsGivenOtherCores(t *testing.T) {
	y := newYard(t)
	w := y.experimenter("a")
	has := func(cores, memory string) {
		t.Helper()
		for _, where := range []string{".spec.containers[0]", ".status.containerStatuses[0]"} {
			got := y.kubectl("get", "pod", "a-1-0", "-n", y.namespace, "-o",
				"jsonpath={"+where+".resources.limits.cpu} {"+where+".resources.limits.memory}")
			if got != cores+" "+memory {
				t.Errorf("%s has %q, want %s processors and %s", where, got, cores, memory)
			}
		}
		if got := y.kubectl("get", "pod", "a-1-0", "-n", y.namespace, "-o", "jsonpath={.status.containerStatuses[0].restartCount}"); got != "0" {
			t.Errorf("its container was restarted %s times", got)
		}
	}
	w.request(map[string]float64{"cores": 2, "memory_mib": 512})
	y.submit("a", 1_000_000, 1, func(s *train.Spec) { s.MaxDevices = 1 })
	y.plan(on("a", "gpu:0"))
	y.running("a", 1)
	if got := w.applied(); got.Values["cores"] != 2 || got.Values["memory_mib"] != 512 || len(got.Restarts) != 0 {
		t.Errorf("at first %+v", got)
	}
	has("2", "512Mi")

	w.request(map[string]float64{"cores": 1, "memory_mib": 768})
	if got := w.applied(); got.Values["cores"] != 1 || got.Values["memory_mib"] != 768 || len(got.Restarts) != 0 {
		t.Errorf("then %+v", got)
	}
	has("1", "768Mi")

	w.request(map[string]float64{"cores": 1000, "memory_mib": 768})
	if got := w.applied(); got.Refused["cores"] == "" || got.Values["memory_mib"] != 768 {
		t.Errorf("more than its node has: %+v", got)
	}
	has("1", "768Mi")
	epochs := y.state("a", train.StateRunning).EpochsDone
	job := y.job("a", "trains on", func(j train.Job) bool { return j.EpochsDone > epochs+1 })
	if job.Attempt != 1 || job.Restarts != 0 {
		t.Errorf("attempt %d after %d restarts", job.Attempt, job.Restarts)
	}

	w.request(map[string]float64{"cores": 1, "memory_mib": 512, "devices": 2})
	y.plan(on("a", "gpu:0", "gpu:1"))
	y.running("a", 2)
	if got := w.applied(); got.Attempt != 2 || got.Values["devices"] != 2 || got.Values["memory_mib"] != 512 || len(got.Refused) != 0 {
		t.Errorf("on two devices: %+v", got)
	}
	y.cancel("a")
	y.nothingLeft()
}

// A trial whose pod may not have the wanted values waits with the reason, and is then created without them.
func TestATrialThatIsForbiddenGoesOnWithoutItsValues(t *testing.T) {
	y := newYard(t, "--pod-start-limit=4s")
	y.apply(`{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"small"},"spec":{"limits":[{"type":"Container","max":{"memory":"640Mi"}}]}}`)
	w := y.experimenter("a")
	w.request(map[string]float64{"cores": 1, "memory_mib": 1024})
	y.submit("a", 1_000_000, 1, func(s *train.Spec) { s.MaxDevices = 1 })
	y.plan(on("a", "gpu:0"))
	y.awaitReason("a", "Forbidden", "maximum memory usage per Container is 640Mi")
	y.running("a", 2)
	if got := w.applied(); got.Attempt != 2 || got.Refused["memory_mib"] == "" {
		t.Errorf("applied %+v", got)
	}
	if j := y.job("a", "trains", epochs(2)); j.Recoveries > 0 {
		t.Errorf("a pod that was never made counts as %d recoveries", j.Recoveries)
	}
	y.cancel("a")
	y.nothingLeft()
}
