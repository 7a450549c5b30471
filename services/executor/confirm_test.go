package executor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
)

// sample publishes a sample of an agent.
func (y *yard) sample(entity, id, fact string, body any) {
	y.t.Helper()
	y.plans++ // a number that was not used before
	y.must(y.bus.Publish(y.t.Context(), event.Fact{
		Subject: event.Subject{Entity: entity, ID: id, Fact: fact, Version: 1}, Key: fmt.Sprintf("sample/%d", y.plans), Source: "nodeagent", Body: body,
	}))
}

// A running job has another micro-batch when its heartbeats say so, and not before.
func TestAMicroBatchIsConfirmedByHeartbeats(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	e := newRetuner(&shared{bus: y.bus, cache: newCache(diff.Realm{})}, nil)
	a := train.Attempt{Job: "a", Number: 2, Node: "n1", Devices: []train.DeviceID{"cpu:0"}}
	setting := train.Setting{Job: "a", Generation: 3, BatchSize: 32, Values: map[string]float64{"micro_batch": 8}}
	now := retuning{begun: time.Now()}
	confirm := func(setting train.Setting) train.Applied {
		t.Helper()
		var applied train.Applied
		y.must(e.confirm(t.Context(), a, setting, &now, &applied))
		return applied
	}
	beat := func(attempt int, generation uint64, micro int) {
		t.Helper()
		y.sample("sample", "a", event.FactStepped, event.Stepped{Job: "a", Attempt: attempt, Generation: generation, MicroBatch: micro})
	}
	pending := func(when string) {
		t.Helper()
		if got := confirm(setting); len(got.Values)+len(got.Refused) != 0 {
			t.Errorf("%s: %+v", when, got)
		}
	}
	pending("no sample")
	beat(1, 3, 8)
	pending("a sample of an earlier attempt")
	if !now.firstBeat.IsZero() {
		t.Error("it has sent heartbeats already")
	}
	beat(2, 0, 32)
	pending("a sample of another generation")
	now.firstBeat = now.firstBeat.Add(-confirmTime)
	if got := confirm(setting); !strings.Contains(got.Refused["micro_batch"], "runs with 32") {
		t.Errorf("it does not follow: %+v", got)
	}
	beat(2, 0, 0)
	if got := confirm(setting); !strings.Contains(got.Refused["micro_batch"], "can change the micro-batch") {
		t.Errorf("it cannot follow: %+v", got)
	}
	beat(2, 3, 8)
	if got := confirm(setting); got.Values["micro_batch"] != 8 || len(got.Refused) != 0 {
		t.Errorf("it follows: %+v", got)
	}
	setting.Values = map[string]float64{"micro_batch": 64}
	if got := confirm(setting); got.Refused["micro_batch"] == "" {
		t.Errorf("more than a step has: %+v", got)
	}
}

// Code without heartbeats is not waited for once it is known to train: an epoch has ended, or only its output is
// read.
func TestAMicroBatchIsRefusedWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	a := train.Attempt{Job: "a", Number: 2, StartedEpochs: 3}
	setting := train.Setting{Job: "a", Generation: 3, BatchSize: 32, Values: map[string]float64{"micro_batch": 8}}
	for _, test := range []struct {
		name    string
		waited  time.Duration
		epochs  int
		format  string
		refused bool
	}{
		{"it comes up", 2 * confirmTime, 3, "", false},
		{"an epoch has ended", 2 * confirmTime, 4, "", true},
		{"a moment ago", 0, 4, "", false},
		{"its output is read", 2 * confirmTime, 3, train.LogBigDL, true},
	} {
		e := newRetuner(&shared{bus: y.bus, cache: newCache(diff.Realm{})}, nil)
		e.cache.jobs["a"] = bus.Entry[*train.Job]{Value: &train.Job{ID: "a", Spec: train.Spec{LogFormat: test.format}}}
		e.cache.reports[diff.ReportKey{Job: "a", Number: 2}] = train.AttemptReport{EpochsDone: test.epochs}
		var applied train.Applied
		y.must(e.confirm(t.Context(), a, setting, &retuning{begun: time.Now().Add(-test.waited)}, &applied))
		if refused := strings.Contains(applied.Refused["micro_batch"], "no heartbeats"); refused != test.refused {
			t.Errorf("%s: %+v", test.name, applied)
		}
	}
}

// A power limit is applied when all devices were measured at it.
func TestAPowerLimitIsConfirmedByMeasurements(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	e := newRetuner(&shared{bus: y.bus}, nil)
	setting := train.Setting{Job: "a", Generation: 3, Values: map[string]float64{"power_limit_w": 150}}
	confirm := func(waited time.Duration, devices ...train.DeviceID) train.Applied {
		t.Helper()
		var applied train.Applied
		now := retuning{begun: time.Now().Add(-waited)}
		y.must(e.confirm(t.Context(), train.Attempt{Job: "a", Number: 2, Node: "n1", Devices: devices}, setting, &now, &applied))
		return applied
	}
	measured := func(watts ...float64) {
		t.Helper()
		m := event.Measured{Node: "n1"}
		for i, w := range watts {
			m.Meters = append(m.Meters, event.Meter{Component: event.ComponentGPU, Device: train.DeviceID(fmt.Sprintf("gpu:%d", i)), Board: &event.Board{LimitWatts: w}})
		}
		y.sample("energy", "n1", event.FactMeasured, m)
	}
	if got := confirm(0, "cpu:0"); got.Refused["power_limit_w"] == "" {
		t.Errorf("a slot: %+v", got)
	}
	if got := confirm(2*confirmTime, "gpu:0"); !strings.Contains(got.Refused["power_limit_w"], "are not measured") {
		t.Errorf("not measured: %+v", got)
	}
	measured(150.2, 300)
	if got := confirm(0, "gpu:0"); got.Values["power_limit_w"] != 150 {
		t.Errorf("at its limit: %+v", got)
	}
	if got := confirm(0, "gpu:0", "gpu:1"); len(got.Values)+len(got.Refused) != 0 {
		t.Errorf("one of two is not yet: %+v", got)
	}
	if got := confirm(2*confirmTime, "gpu:0", "gpu:1"); !strings.Contains(got.Refused["power_limit_w"], "300") {
		t.Errorf("one of two is not: %+v", got)
	}
}

// Other devices are waited for until a plan gives them, but not for long if none does. Meanwhile the job does not
// leave for another parameter either.
func TestDevicesAreConfirmedByPlans(t *testing.T) {
	setting := train.Setting{Job: "a", Generation: 3, Values: map[string]float64{"devices": 2, "memory_mib": 512}}
	one, two := []train.DeviceID{"cpu:0"}, []train.DeviceID{"cpu:0", "cpu:1"}
	for _, test := range []struct {
		name     string
		has      []train.DeviceID
		planned  []train.DeviceID
		waited   time.Duration
		value    float64
		refused  bool
		restarts bool
		silent   bool
	}{
		{"it has them", two, two, 0, 2, false, true, false},
		{"no plan gives them yet", one, one, 0, 0, false, false, false},
		{"a plan gives them, and an epoch takes long", one, two, 2 * confirmTime, 0, false, false, false},
		{"no plan gives them", one, one, 2 * confirmTime, 0, true, true, false},
		{"it is in no plan", one, nil, 2 * confirmTime, 0, true, true, false},
		{"its code comes up", one, one, 0, 0, false, false, true},
	} {
		e := newRetuner(&shared{cache: newCache(diff.Realm{})}, nil)
		e.cache.follow(train.Plan{Allocations: []train.Allocation{{Job: "a", Node: "n1", Devices: test.planned}}})
		e.cache.reports[diff.ReportKey{Job: "a", Number: 2}] = train.AttemptReport{Spoke: !test.silent}
		now := retuning{begun: time.Now().Add(-2 * confirmTime)}
		if !test.silent {
			now.up = time.Now().Add(-test.waited)
		}
		var applied train.Applied
		applied.TakeByRestart("memory_mib", 512, 256)
		a := train.Attempt{Job: "a", Number: 2, Node: "n1", Devices: test.has}
		if err := e.confirm(t.Context(), a, setting, &now, &applied); err != nil {
			t.Fatal(err)
		}
		restarts := restartReason(applied, applied.Pending(setting.Values)).Code != ""
		if _, refused := applied.Refused["devices"]; refused != test.refused || applied.Values["devices"] != test.value || restarts != test.restarts {
			t.Errorf("%s: %+v, leaves for its memory: %t", test.name, applied, restarts)
		}
	}
}
