package run

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

const (
	// trimEvery is the interval at which a process looks for memory to give back.
	trimEvery = 20 * time.Second
	// trimShare is the part of what it needed after it last gave some back that it must hold beyond that, but trimLeast
	// at least and trimMost at most: a collection takes about a millisecond of processor time for each MiB in use.
	trimShare = 0.25
	trimLeast = 8 << 20
	trimMost  = 32 << 20
	// trimMore is what a round must have freed to be followed by another: what a burst has left in a sync.Pool outlives
	// one collection.
	trimMore = 2 * trimMost
)

// trimMemory gives the memory that a burst of work has left back to the system, until ctx ends. The runtime would keep
// garbage until the heap has doubled.
func trimMemory(ctx context.Context) {
	needed := uint64(0)
	for range tick.After(ctx, trimEvery) {
		if heap() < needed+min(max(uint64(trimShare*float64(needed)), trimLeast), trimMost) {
			continue
		}
		for freed := uint64(trimMore); freed >= trimMore; {
			before := heap()
			debug.FreeOSMemory()
			needed = heap()
			freed = before - min(needed, before)
		}
	}
}

// heap returns the memory of the heap that the system has not got back, garbage included.
func heap() (sum uint64) {
	of := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(of)
	for _, s := range of {
		sum += s.Value.Uint64()
	}
	return sum
}
