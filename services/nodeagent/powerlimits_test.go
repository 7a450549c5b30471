package nodeagent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
	"github.com/switchyard-dl/switchyard/services/nodeagent/simgpu"
)

// limited is a bus with an attempt and its limit controlled by the test, and the GPUs of the agent's folder.
type limited struct {
	t        *testing.T
	ctx      context.Context //nolint:containedctx // the test's own
	url, dir string
	attempts *bus.KV[train.Attempt]
	limits   *bus.KV[train.PowerLimit]
	gpus     simgpu.Reader
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	server := bustest.Start(t)
	b := bustest.Connect(t, server, "test")
	l := &limited{t: t, ctx: within(t), url: server.URL(), dir: t.TempDir()}
	l.gpus = simgpu.Reader{Node: "n1", Count: 2, Limits: filepath.Join(l.dir, "nodeagent", "sim-gpu-limits")}
	var errs [2]error
	l.attempts, errs[0] = bus.OpenKV(l.ctx, b, contract.Attempts)
	l.limits, errs[1] = bus.OpenKV(l.ctx, b, contract.PowerLimits)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return l
}

// attempt stores the state of the job's attempt.
func (l *limited) attempt(number int, phase train.Phase) {
	l.t.Helper()
	_, err := l.attempts.Modify(l.ctx, "j", func(a *train.Attempt) (bool, error) {
		*a = train.Attempt{Job: "j", Number: number, Node: "n1", Devices: []train.DeviceID{"gpu:1"}, Phase: phase}
		return true, nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// want stores the limit of an attempt.
func (l *limited) want(number int, watts float64) {
	l.t.Helper()
	_, err := l.limits.Modify(l.ctx, "j", func(p *train.PowerLimit) (bool, error) {
		*p = train.PowerLimit{Job: "j", Attempt: number, Watts: watts}
		return true, nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// await waits until the second GPU has a limit.
func (l *limited) await(watts float64) {
	l.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := l.gpus.PowerLimits(1)
		if err == nil && now.Now == unit.Watts(watts) {
			return
		}
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			l.t.Fatalf("the limit is %v, not %g W: %v", now, watts, err)
		}
	}
}

// TestLimitsFollowTheAttempts makes the agent set what the planner wants, and restore it when the attempt ends,
// another one follows, or the agent stops.
func TestLimitsFollowTheAttempts(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	stop := start(t, l.url, l.dir, "--device-kind=gpu", "--sim-gpus=2")
	l.attempt(1, train.PhaseRunning)
	l.want(1, 150)
	l.await(150)
	l.want(1, 125)
	l.await(125)
	l.attempt(1, train.PhaseExited)
	l.await(300)
	l.attempt(2, train.PhaseRunning)
	l.want(2, 200)
	l.await(200)
	stop()
	l.await(300)
	start(t, l.url, l.dir, "--device-kind=gpu", "--sim-gpus=2")
	l.await(200)
	if other, err := l.gpus.PowerLimits(0); err != nil || other.Now != 300*unit.Watt {
		t.Errorf("the other GPU has %v, %v", other, err)
	}
}

// TestLimitsAreGivenBackAfterAKill ends the job while no agent runs.
func TestLimitsAreGivenBackAfterAKill(t *testing.T) {
	l := newLimited(t)
	agent := exec.CommandContext(t.Context(), "/proc/self/exe", asAgent, flagsOnly, "--nats", l.url, "--data-dir", l.dir, "--node", "n1", "--http", "127.0.0.1:0",
		"--device-kind=gpu", "--sim-gpus=2", "--log-level=error")
	agent.Stderr = os.Stderr
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	l.attempt(1, train.PhaseRunning)
	l.want(1, 150)
	l.await(150)
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	l.attempt(1, train.PhaseExited)
	l.await(150)
	start(t, l.url, l.dir, "--device-kind=gpu", "--sim-gpus=2")
	l.await(300)
}

// TestALimitedDeviceIsDescribedByItsOwnLimit is what a power budget rests on.
func TestALimitedDeviceIsDescribedByItsOwnLimit(t *testing.T) {
	gpus := simgpu.Reader{Node: "n1", Count: 2, Sick: filepath.Join(t.TempDir(), "none"), Limits: filepath.Join(t.TempDir(), "limits")}
	known, err := gpus.Devices()
	if err != nil {
		t.Fatal(err)
	}
	live := func() []train.Attempt {
		return []train.Attempt{{Job: "j", Number: 1, Devices: []train.DeviceID{"gpu:1"}}, {Job: "old", Number: 2, Devices: []train.DeviceID{"gpu:0"}}}
	}
	p, err := newPowerLimits(t.TempDir(), gpus, func() []gpu.Device { return known }, live, newTrialSettings().watts, quiet())
	if err != nil {
		t.Fatal(err)
	}
	p.onLimit(bus.Entry[train.PowerLimit]{Key: "j", Value: train.PowerLimit{Job: "j", Attempt: 1, Watts: 150}}, false)
	p.onLimit(bus.Entry[train.PowerLimit]{Key: "old", Value: train.PowerLimit{Job: "old", Attempt: 1, Watts: 150}}, false)
	if err := p.apply(p.now()); err != nil {
		t.Fatal(err)
	}
	devices := []train.Device{{UUID: known[0].UUID, BusyWatts: 300}, {UUID: known[1].UUID, BusyWatts: 150}}
	p.describe(devices)
	if devices[0].BusyWatts != 300 || devices[1].BusyWatts != 300 {
		t.Errorf("described as %+v", devices)
	}
	if other, err := gpus.PowerLimits(0); err != nil || other.Now != 300*unit.Watt {
		t.Errorf("the limit of an earlier attempt is set: %v, %v", other, err)
	}
	if p, err := newPowerLimits(t.TempDir(), nil, nil, nil, nil, quiet()); p != nil || err != nil {
		t.Errorf("limits without GPUs: %v, %v", p, err)
	}
}

func TestTheMostGenerousLimitCountsOnASharedDevice(t *testing.T) {
	job := func(id train.JobID, device train.DeviceID) train.Attempt {
		return train.Attempt{Job: id, Number: 1, Devices: []train.DeviceID{device}}
	}
	live := []train.Attempt{job("a", "gpu:0"), job("b", "gpu:0"), job("a", "gpu:1"), job("free", "gpu:1"), job("free", "gpu:2")}
	trials := newTrialSettings()
	p := &powerLimits{live: func() []train.Attempt { return live }, trials: trials.watts, wanted: map[string]train.PowerLimit{
		"a": {Attempt: 1, Watts: 100}, "b": {Attempt: 1, Watts: 150},
	}}
	if got := p.now(); len(got) != 1 || got["gpu:0"] != 150*unit.Watt {
		t.Errorf("limits %v", got)
	}
	// What the experiment of a trial wants takes precedence over the planner.
	for job, watts := range map[train.JobID]float64{"b": 120, "free": 200} {
		trials.onSetting(bus.Entry[train.Setting]{Key: string(job), Value: train.Setting{Job: job, Values: map[string]float64{"power_limit_w": watts}}}, false)
	}
	if got := p.now(); len(got) != 3 || got["gpu:0"] != 120*unit.Watt || got["gpu:1"] != 200*unit.Watt || got["gpu:2"] != 200*unit.Watt {
		t.Errorf("limits with those of trials %v", got)
	}
}
