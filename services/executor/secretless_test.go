package executor

import (
	"context"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/diff"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
)

// secretless is a back end that cannot keep secrets.
type secretless struct{ *local.Backend }

func (secretless) MakeSecrets(context.Context, train.Attempt) (capability, token string, err error) {
	exit := train.Exit{Lost: true, Unstarted: true, Reason: train.Reason{Code: launch.Forbidden, Message: "exceeded quota"}}
	return "capability", "token", &launch.RefusedError{Exit: exit}
}

// An attempt that cannot have its secrets ends before it starts, with the reason: its devices are free again.
func TestAnAttemptWithoutSecretsEnds(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.stop()
	log, realm := testLogger(t), diff.Realm{Realm: train.Realm{Machine: "n1"}}
	b := secretless{local.New(y.dir, local.Supervisor{}, prepare.Bounds{LogBytes: 1 << 20, KillAfterMillis: 300})}
	e := newStarter(&shared{log: log, cache: newCache(realm), faults: newFaultLog(log), buckets: buckets{attempts: y.attempts}}, b, realm, settings.Executor{})
	e.cache.jobs["j1"] = bus.Entry[*train.Job]{Value: &train.Job{ID: "j1", Spec: command("true")}}
	e.cache.realm.Nodes["n1"] = train.Node{ID: "n1", JobAPI: "127.0.0.1:1", Devices: []train.Device{{ID: "cpu:0", Kind: train.KindCPU}}}
	started, err := e.claim(t.Context(), diff.Action{Job: "j1", Number: 1, Places: []train.Part{{Node: "n1", Devices: []train.DeviceID{"cpu:0"}}}})
	if y.must(err); started.Job != "" {
		t.Error("its processes are to be started")
	}
	stored, err := y.attempts.Get(t.Context(), "j1")
	y.must(err)
	s, err := b.Status(t.Context(), stored.Value)
	if y.must(err); s.Phase != launch.Exited || !s.Exit.Unstarted || s.Exit.Reason.Code != launch.Forbidden {
		t.Errorf("%+v", s)
	}
}
