package jobs

import (
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// A pod is made with the cores and the memory of its trial and given others while it trains: by the kubelet, without a restart. What its node does not have is
// refused. For other devices it starts again, with the plan that gives them.
func TestARunningPodIsGivenOtherCores(t *testing.T) {
	y := newYard(t)
	wishes, err := bus.OpenKV[train.Setting](y.ctx, y.bus, event.BucketSettings)
	y.must(err)
	began, generation := time.Now(), uint64(0)
	var wanted map[string]float64
	wish := func(values map[string]float64) {
		t.Helper()
		wanted = values
		generation++
		_, err := wishes.Modify(y.ctx, "a", func(s *train.Setting) (bool, error) {
			*s = train.Setting{Job: "a", Experiment: "e", Generation: generation, Values: values}
			return true, nil
		})
		y.must(err)
	}
	applied := func() train.Applied {
		t.Helper()
		var found train.Applied
		y.until("it is told what the pod has", func() bool {
			settled := false
			subject := event.Subject{Entity: "tune", ID: "e", Fact: event.FactRetuned, Version: 1}.String()
			y.must(y.bus.Stored(y.ctx, event.StreamTune, []string{subject}, began, func(m bus.Message) {
				b, err := event.Decode[event.Retuned](m.Data)
				if err == nil && b.Generation == generation && len(b.Pending(wanted)) == 0 {
					found, settled = b.Applied, true
				}
			}))
			return settled
		})
		return found
	}
	has := func(cores, memory string) {
		t.Helper()
		for _, where := range []string{".spec.containers[0]", ".status.containerStatuses[0]"} {
			got := y.kubectl("get", "pod", "a-1-0", "-n", y.namespace, "-o", "jsonpath={"+where+".resources.limits.cpu} {"+where+".resources.limits.memory}")
			if got != cores+" "+memory {
				t.Errorf("%s has %q, want %s processors and %s", where, got, cores, memory)
			}
		}
		if got := y.kubectl("get", "pod", "a-1-0", "-n", y.namespace, "-o", "jsonpath={.status.containerStatuses[0].restartCount}"); got != "0" {
			t.Errorf("its container was restarted %s times", got)
		}
	}
	wish(map[string]float64{"cores": 2, "memory_mib": 512})
	y.submit("a", 1_000_000, 1, func(s *train.Spec) { s.MaxDevices = 1 })
	y.plan(on("a", "gpu:0"))
	y.running("a", 1)
	if got := applied(); got.Values["cores"] != 2 || got.Values["memory_mib"] != 512 || len(got.Restarts) != 0 {
		t.Errorf("at first %+v", got)
	}
	has("2", "512Mi")

	wish(map[string]float64{"cores": 1, "memory_mib": 768})
	if got := applied(); got.Values["cores"] != 1 || got.Values["memory_mib"] != 768 || len(got.Restarts) != 0 {
		t.Errorf("then %+v", got)
	}
	has("1", "768Mi")

	wish(map[string]float64{"cores": 1000, "memory_mib": 768})
	if got := applied(); got.Refused["cores"] == "" || got.Values["memory_mib"] != 768 {
		t.Errorf("more than its node has: %+v", got)
	}
	has("1", "768Mi")
	epochs := y.state("a", train.StateRunning).EpochsDone
	job := y.job("a", "trains on", func(j train.Job) bool { return j.EpochsDone > epochs+1 })
	if job.Attempt != 1 || job.Restarts != 0 {
		t.Errorf("attempt %d after %d restarts", job.Attempt, job.Restarts)
	}

	wish(map[string]float64{"cores": 1, "memory_mib": 512, "devices": 2})
	y.plan(on("a", "gpu:0", "gpu:1"))
	y.running("a", 2)
	if got := applied(); got.Attempt != 2 || got.Values["devices"] != 2 || got.Values["memory_mib"] != 512 || len(got.Refused) != 0 {
		t.Errorf("on two devices: %+v", got)
	}
	y.cancel("a")
	y.nothingLeft()
}
