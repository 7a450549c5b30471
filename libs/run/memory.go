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
	trimMost  = 32 << 20
	// trimMore is what a round must have freed to be followed by another, and trimRounds the most of them: what a burst
	// has left in a sync.Pool outlives one collection, and while work goes on, each round frees what it left meanwhile.
	trimMore   = 2 * trimMost
	trimRounds = 3
	// trimRest times the duration of the last rounds must pass before the next ones: they take at most a fiftieth of the
	// time.
	trimRest = 50
)

const (
	// thrifty and usual are by how many percent the heap may grow until it is collected.
	thrifty, usual = 50, 100
	// Collections may take busy of a processor over judgeEvery before the heap may grow as usual. Once they take less than
	// idle, growth is thrifty again.
	busy, idle = 0.05, 0.01
	judgeEvery = time.Minute
)

// boundGarbage keeps garbage small while that costs little, until ctx ends. A burst of work leaves less of it, and so
// fewer holes in the heap. The setting GOGC of the environment has precedence.
func boundGarbage(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent, before := thrifty, collecting()
	debug.SetGCPercent(percent)
	for tick.Pause(ctx, judgeEvery) {
		now := collecting()
		percent = growth(percent, (now-before)/judgeEvery.Seconds())
		debug.SetGCPercent(percent)
		before = now
	}
}

// growth returns by how many percent the heap may grow from now on, when collections have taken a share of a processor.
func growth(percent int, share float64) int {
	switch {
	case share > busy:
		return usual
	case share < idle:
		return thrifty
	}
	return percent
}

// collecting returns the processor time that collections have taken, in seconds.
func collecting() float64 {
	of := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(of)
	return of[0].Value.Float64()
}

// trimMemory gives the memory that a burst of work has left back to the system, until ctx ends. The runtime would keep
// garbage until the heap has grown by that of boundGarbage.
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
