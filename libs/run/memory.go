package run

import (
	"context"
	"os"
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
	trimMost  = 16 << 20
	// trimMore is what a round must have freed to be followed by another, and trimRounds the most of them: what a burst
	// has left in a sync.Pool outlives one collection, and while work goes on, each round frees what it left meanwhile.
	trimMore   = 64 << 20
	trimRounds = 3
	// trimRest times the duration of the last rounds must pass before the next ones: they take at most a fiftieth of the
	// time.
	trimRest = 50
)

const (
	// lowPercent and highPercent bound GOGC: by how many percent of what is in use the heap grows until it is collected.
	lowPercent, highPercent = 50, 200
	// If collections take more than highShare of a processor over judgeEvery, or less than lowShare, the percentage
	// becomes the one with which they would take highShare.
	highShare, lowShare = 0.05, 0.01
	judgeEvery          = time.Minute
)

// setGCPercent keeps the heap small while that costs little, until ctx ends: a burst of work then leaves fewer holes in
// it. GOGC in the environment has precedence.
func setGCPercent(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent, before := lowPercent, collecting()
	debug.SetGCPercent(percent)
	for tick.Pause(ctx, judgeEvery) {
		now := collecting()
		if next := gcPercent(percent, (now-before)/judgeEvery.Seconds()); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
		before = now
	}
}

// gcPercent returns the percentage from now on, if collections have taken a share of a processor with the present one.
// What they take is inversely proportional to it.
func gcPercent(present int, share float64) int {
	if lowShare <= share && share <= highShare {
		return present
	}
	return min(max(int(float64(present)*share/highShare), lowPercent), highPercent)
}

// collecting returns the processor time that collections have taken, in seconds.
func collecting() float64 {
	of := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(of)
	return of[0].Value.Float64()
}

// trimMemory gives the memory that a burst of work has left back to the system, until ctx ends. The runtime would keep
// it until the next collection, and for minutes after that.
func trimMemory(ctx context.Context) {
	needed, pause := uint64(0), trimEvery
	for tick.Pause(ctx, pause) {
		pause = trimEvery
		if heap() < needed+min(max(uint64(trimShare*float64(needed)), trimLeast), trimMost) {
			continue
		}
		began := time.Now()
		for range trimRounds {
			before := heap()
			debug.FreeOSMemory()
			needed = heap()
			if before < needed+trimMore {
				break
			}
		}
		pause = max(pause, trimRest*time.Since(began))
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
