package nodeagent

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestWrongSettingsOfProbesAreNamed(t *testing.T) {
	good := network{listen: []string{"10.0.0.2:7070", "[fd00::2]:7070"}, rate: 10, bytes: 400, mostPackets: 60, mostBytes: 12_500, traceEvery: time.Minute}
	if errs := good.validate(); len(errs) != 0 || len(good.listenParsed) != 2 {
		t.Errorf("%v", errs)
	}
	fast := network{rate: 100, bytes: 400, mostPackets: 60, mostBytes: 12_500, traceEvery: time.Minute}
	if errs := fast.validate(); len(errs) != 0 {
		t.Errorf("a budget without room for the probes of an agent that sends none: %v", errs)
	}
	if fast.listen = good.listen; len(fast.validate()) != 1 {
		t.Errorf("%v", fast.validate())
	}
	bad := network{listen: []string{"host", "0.0.0.0:1"}, rate: 0, bytes: 3, mostPackets: 1, mostBytes: 1, traceEvery: 1}
	if errs := bad.validate(); len(errs) != 6 {
		t.Errorf("%v", errs)
	}
}

// enter writes a record as its owner would.
func enter[T any](t *testing.T, b *bus.Bus, bucket, key string, value T) {
	t.Helper()
	kv, err := bus.OpenKV[T](t.Context(), b, bucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Modify(t.Context(), key, func(v *T) (bool, error) { *v = value; return true, nil }); err != nil {
		t.Fatal(err)
	}
}

func TestAnAgentProbesAsItIsAskedAndTellsWhatItCounted(t *testing.T) {
	s := bustest.Start(t)
	b := bustest.Connect(t, s, "test")
	start(t, s.URL(), t.TempDir(), "--probe-listen", "127.0.0.1:0", "--probe-rate", "100", "--probe-budget-packets", "500", "--probe-budget-bytes", "100000")
	n := node(t, b, time.Time{})
	if len(n.Probes) != 1 {
		t.Fatalf("the node answers at %v", n.Probes)
	}
	// It probes itself: its own address is that of a registered node as well as any.
	f := train.Flow{From: "n1", To: "n1", Source: "127.0.0.1:" + strconv.Itoa(bustest.FreePort(t)), Target: n.Probes[0]}
	enter(t, b, event.BucketProbes, "n1", train.Pinglist{Key: []byte("key"), Probes: []train.Flow{f}, Trace: []train.Flow{f}})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var told event.ProbesCounted
	err := b.Follow(ctx, event.StreamSamples, []string{"yard.probe.n1.counted.v1"}, 1, func(m bus.Message) {
		told, _ = event.Decode[event.ProbesCounted](m.Data)
		cancel()
	})
	if err != nil || len(told.Sent) != 1 || len(told.Received) != 1 || told.Sent[0].Flow != f.ID() || told.Sent[0].Acked == 0 || told.Received[0].Count != told.Sent[0].Sent {
		t.Errorf("told %+v, %v", told, err)
	}
	paths, err := bus.OpenKV[train.Paths](t.Context(), b, event.BucketPaths)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := paths.Get(t.Context(), "n1"); err != nil || len(e.Value.Paths) != 1 || !e.Value.Paths[0].Complete {
		t.Errorf("path %+v, %v", e.Value, err)
	}
}
