package nodeagent

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/netprobe"
)

func TestWrongSettingsOfProbesAreNamed(t *testing.T) {
	for words, want := range map[string]string{
		"--probe-listen=10.0.0.2:7070,[fd00::2]:7070": "",
		// More than the budget, and nothing is probed.
		"--probe-rate=100": "",

		"--probe-listen=10.0.0.2:7070 --probe-rate=100":       "do not fit into three quarters of 120 packets",
		"--probe-listen=host":                                 "want an address of this node",
		"--probe-listen=0.0.0.0:1":                            "want an address of this node",
		"--probe-rate=0":                                      "--probe-rate 0: want more than 0",
		"--probe-bytes=3":                                     "--probe-bytes 3: want 56 to 1400",
		"--probe-listen=10.0.0.2:7070 --probe-budget-bytes=1": "want at least",
	} {
		s, err := configured(strings.Fields(words)...)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", words, err, want)
		}
		if len(s.network.prober().Listen) != len(s.network.Listen) && err == nil {
			t.Errorf("%s: listens at %v", words, s.network.prober().Listen)
		}
	}
	if settings.ProbeHeaderBytes != netprobe.HeaderBytes {
		t.Errorf("a probe has %d bytes at least, in the configuration %d", netprobe.HeaderBytes, settings.ProbeHeaderBytes)
	}
}

// enter writes a record as its owner would.
func enter[T any](t *testing.T, b *bus.Bus, bucket contract.Bucket[T], key string, value T) {
	t.Helper()
	kv, err := bus.OpenKV(t.Context(), b, bucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Modify(t.Context(), key, func(v *T) (bool, error) { *v = value; return true, nil }); err != nil {
		t.Fatal(err)
	}
}

func TestAnAgentProbesItsListAndPublishesTheCounts(t *testing.T) {
	t.Parallel()
	s := bustest.Start(t)
	b := bustest.Connect(t, s, "test")
	start(t, s.URL(), t.TempDir(), "--probe-listen", "127.0.0.1:0", "--probe-rate", "100", "--probe-budget-packets", "500", "--probe-budget-bytes", "100000")
	n := node(t, b, time.Time{})
	if len(n.Probes) != 1 {
		t.Fatalf("the node answers at %v", n.Probes)
	}
	// It probes itself: its own address is that of a registered node like any other.
	f := train.Flow{From: "n1", To: "n1", Source: "127.0.0.1:" + strconv.Itoa(bustest.FreePort(t)), Target: n.Probes[0]}
	enter(t, b, contract.Probes, "n1", train.Pinglist{Key: []byte("key"), Probes: []train.Flow{f}, Trace: []train.Flow{f}})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var reported event.ProbesCounted
	err := b.Follow(ctx, event.StreamSamples, []string{"yard.probe.n1.counted.v1"}, 1, func(m bus.Message) {
		// On a busy machine the agent may stall, and then counts nothing for the slot.
		if reported, _ = event.Decode[event.ProbesCounted](m.Data); !reported.Stalled {
			cancel()
		}
	})
	if err != nil || len(reported.Sent) != 1 || len(reported.Received) != 1 || reported.Sent[0].Flow != f.ID() || reported.Sent[0].Acked == 0 || reported.Received[0].Count != reported.Sent[0].Sent {
		t.Errorf("got %+v, %v", reported, err)
	}
	paths, err := bus.OpenKV[train.Paths](t.Context(), b, contract.Paths)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := paths.Get(t.Context(), "n1"); err != nil || len(e.Value.Paths) != 1 || !e.Value.Paths[0].Complete {
		t.Errorf("path %+v, %v", e.Value, err)
	}
}
