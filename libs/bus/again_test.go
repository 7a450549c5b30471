package bus_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// A bucket is lost while services work, and some of its records come back. Watches forget the others, also before any
// job was submitted.
func TestAWatchForgetsWhatALostBucketHeld(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	s.open()
	defer s.close()
	tenants, err := bus.OpenKV(within(t), s.bus, contract.Tenants)
	if err != nil {
		t.Fatal(err)
	}
	asked := event.Fact{Subject: event.Subject{Entity: "tenant", ID: "a", Fact: event.FactSetRequested, Version: 1}, Key: "a", Body: map[string]string{}}
	if err := s.bus.Publish(within(t), asked); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := tenants.Put(within(t), name, access.Tenant{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	known := map[string]uint64{}
	ctx, cancel := context.WithCancel(within(t))
	var watching conc.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		_ = tenants.Watch(ctx, func(e bus.Entry[access.Tenant], deleted bool) {
			mu.Lock()
			defer mu.Unlock()
			switch had, is := known[e.Key]; {
			case is && e.Revision <= had:
			case deleted:
				delete(known, e.Key)
			default:
				known[e.Key] = e.Revision
			}
		}, nil)
	})
	knows := func(want ...string) {
		t.Helper()
		var names []string
		for range tick.Every(ctx, 20*time.Millisecond) {
			mu.Lock()
			names = slices.Sorted(maps.Keys(known))
			mu.Unlock()
			if slices.Equal(names, want) {
				return
			}
		}
		t.Fatalf("the watch knows %v, want %v", names, want)
	}
	knows("a", "b")
	if err := bustest.JetStream(t, s.server.URL()).DeleteKeyValue(within(t), string(contract.Tenants)); err != nil {
		t.Fatal(err)
	}
	s.lost("KV_"+string(contract.Tenants), "was made again")
	if err := tenants.Put(within(t), "a", access.Tenant{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	knows("a")
}
