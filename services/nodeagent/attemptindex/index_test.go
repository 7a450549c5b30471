package attemptindex

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// bucket is a Source that counts.
type bucket struct {
	entries []bus.Entry[train.Attempt]
	err     error
	lists   atomic.Int64
}

func (b *bucket) Get(_ context.Context, key string) (bus.Entry[train.Attempt], error) {
	for _, e := range b.entries {
		if e.Key == key {
			return e, nil
		}
	}
	return bus.Entry[train.Attempt]{}, bus.ErrNotFound
}

func (b *bucket) List(context.Context, ...string) ([]bus.Entry[train.Attempt], error) {
	b.lists.Add(1)
	return b.entries, b.err
}

func entry(job train.JobID, number int, revision uint64) bus.Entry[train.Attempt] {
	return bus.Entry[train.Attempt]{Key: string(job), Revision: revision, Value: train.Attempt{
		Job: job, Number: number, Node: "n1", Phase: train.PhaseRunning, CapabilityHash: train.Hash("secret of " + string(job)),
	}}
}

func TestAnOlderEntryChangesNothing(t *testing.T) {
	r := New(&bucket{})
	r.Put(entry("a", 2, 9), false)
	r.Put(entry("a", 1, 4), false)
	r.Put(entry("b", 1, 10), false)
	ended := entry("b", 1, 11)
	ended.Value.Phase = train.PhaseExited
	r.Put(ended, false)
	other := entry("c", 1, 12)
	other.Value.Node = "n2"
	r.Put(other, false)
	if diff := cmp.Diff([]train.Attempt{entry("a", 2, 9).Value}, r.Live("n1")); diff != "" {
		t.Errorf("live (-want +got)\n%s", diff)
	}
	if !r.Holds("a", 2) || r.Holds("a", 1) || r.Holds("b", 1) || r.Holds("none", 0) {
		t.Error("holds the wrong attempts")
	}
	r.Put(bus.Entry[train.Attempt]{Key: "a", Revision: 13}, true)
	if _, err := r.Find(t.Context(), "secret of a"); !errors.Is(err, ErrUnknown) {
		t.Errorf("error %v of an attempt that was deleted", err)
	}
}

func TestAGangIsLiveOnEachOfItsNodes(t *testing.T) {
	r := New(&bucket{})
	gang := entry("a", 1, 1)
	gang.Value.Node = ""
	gang.Value.Parts = []train.Part{{Node: "n1", Devices: []train.DeviceID{"gpu:0"}}, {Node: "n2", Devices: []train.DeviceID{"gpu:3"}}}
	r.Put(gang, false)
	want := gang.Value
	want.Node, want.Devices, want.Parts = "n2", []train.DeviceID{"gpu:3"}, nil
	if diff := cmp.Diff([]train.Attempt{want}, r.Live("n2")); diff != "" {
		t.Errorf("on n2 (-want +got)\n%s", diff)
	}
	if got := r.Live("n3"); len(got) != 0 {
		t.Errorf("on n3: %+v", got)
	}
}

// An agent knows the attempts that have no place on its node: their processes may work there, but hold no devices.
func TestAttemptsElsewhereHoldNothingHere(t *testing.T) {
	r := New(&bucket{})
	claimed, driver := entry("a", 1, 1), entry("b", 1, 2)
	claimed.Value.Phase = train.PhaseClaimed
	driver.Value.Devices, driver.Value.PID, driver.Value.PIDStart, driver.Value.BootID = []train.DeviceID{"cpu:0"}, 7, 9, "boot"
	for _, e := range []bus.Entry[train.Attempt]{claimed, driver, entry("c", 1, 3)} {
		r.Put(e, false)
	}
	want := []train.Attempt{entry("b", 1, 2).Value, entry("c", 1, 3).Value}
	for i := range want {
		want[i].Node = "n2"
	}
	if diff := cmp.Diff(want, r.Elsewhere("n2")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := r.Elsewhere("n1"); len(got) != 0 {
		t.Errorf("on their own node: %+v", got)
	}
}

func TestFindReadsTheBucketBeforeItGivesUp(t *testing.T) {
	b := &bucket{}
	r := New(b)
	if _, err := r.Find(t.Context(), "secret of a"); !errors.Is(err, ErrUnknown) {
		t.Errorf("error %v", err)
	}
	b.entries = append(b.entries, entry("a", 1, 1))
	if a, err := r.Find(t.Context(), "secret of a"); err != nil || a.Job != "a" {
		t.Errorf("%+v, error %v: the newest reading began before it was there", a, err)
	}
	if _, err := r.Find(t.Context(), ""); !errors.Is(err, ErrUnknown) {
		t.Errorf("no secret: error %v", err)
	}
	b.err = errors.New("away")
	if _, err := r.Find(t.Context(), "other"); errors.Is(err, ErrUnknown) || err == nil {
		t.Errorf("error %v: a bucket that cannot be read knows nothing", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Find(ended, "other"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestManyUnknownCallersCauseFewReadings(t *testing.T) {
	b := &bucket{}
	r := New(b)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var callers conc.WaitGroup
	const n = 200
	for range n {
		callers.Go(func() {
			if _, err := r.Find(ctx, "nobody's"); !errors.Is(err, ErrUnknown) {
				t.Errorf("error %v", err)
			}
		})
	}
	callers.Wait()
	if lists := b.lists.Load(); lists > n/4 {
		t.Errorf("%d readings for %d callers", lists, n)
	}
}

func TestRefresh(t *testing.T) {
	b := &bucket{entries: []bus.Entry[train.Attempt]{entry("a", 2, 5)}}
	r := New(b)
	r.Put(entry("a", 1, 4), false)
	if a, err := r.Refresh(t.Context(), "a"); err != nil || a.Number != 2 {
		t.Errorf("%+v, error %v", a, err)
	}
	if _, err := r.Refresh(t.Context(), "none"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("error %v", err)
	}
}

func TestSameHash(t *testing.T) {
	if !SameHash(train.Hash("a"), train.Hash("a")) || SameHash(train.Hash("a"), train.Hash("b")) || SameHash("", "") {
		t.Error("wrong")
	}
}
