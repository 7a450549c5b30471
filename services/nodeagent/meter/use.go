package meter

import (
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/services/nodeagent/gpu"
)

// usage is what one attempt, or all other processes together, did on a device in an interval, as fractions of its
// time.
type usage struct {
	work, context float64
	memory        unit.Bytes
	estimated     bool
}

func (t *usage) add(other usage) {
	t.work += other.work
	t.context += other.context
	t.memory += other.memory
	t.estimated = t.estimated || other.estimated
}

// part returns an equal share of what cannot be attributed. It has no memory: that may belong to another job, and no
// job should answer for it.
func (t usage) part(of int) usage {
	n := float64(of)
	return usage{work: t.work / n, context: t.context / n, estimated: t.estimated || of > 1}
}

// deviceUse is all use of a device, and the share of it that is reserved for each planned attempt.
type deviceUse struct {
	jobs   map[runKey]usage
	others usage
	// otherCount is how many processes belong to no attempt.
	otherCount int
	reserved   map[runKey]float64
}

// useOf attributes the processes on a device. before are the processes that had a context there at the beginning of
// the interval, with their owners at that time.
//
// A context that was seen only at one end of the interval counts half. If unknown processes run on a device, they are
// attributed to the attempt that holds it: the processes of a container may have other numbers. On a device that
// attempts share, unknown processes are attributed in equal shares.
func useOf(id train.DeviceID, s gpu.Sample, before map[int]occupant, owners owners, attempts []train.Attempt) (deviceUse, map[int]occupant) {
	t := deviceUse{jobs: map[runKey]usage{}, reserved: map[runKey]float64{}}
	after, counts := map[int]occupant{}, map[int]int{}
	for _, p := range s.Processes {
		counts[p.Slice]++
	}
	for _, p := range s.Processes {
		who, ours := owners.of(p.PID, p.LastWork)
		part := usage{work: p.Utilisation, memory: p.Memory}
		if p.SliceSize > 0 {
			// MIG instances are not sampled: each counts by its size, in equal shares for all processes on it.
			part.work, part.estimated = float64(p.SliceSize)/gpu.MostSlices/float64(counts[p.Slice]), true
		}
		if p.Context {
			part.context = 0.5
			after[p.PID] = occupant{who, ours}
		}
		t.put(occupant{who, ours}, part)
	}
	for _, then := range before {
		t.put(then, usage{context: 0.5})
	}
	holders := slices.DeleteFunc(slices.Clone(attempts), func(a train.Attempt) bool {
		return !slices.ContainsFunc(a.Devices, func(d train.DeviceID) bool { return d.Board() == id })
	})
	if t.otherCount > 0 && len(t.jobs) == 0 && len(holders) > 0 {
		for _, a := range holders {
			t.jobs[runOf(a)] = t.others.part(len(holders))
		}
		t.others, t.otherCount = usage{}, 0
	}
	for _, a := range holders {
		t.reserved[runOf(a)] = 1 / float64(len(holders))
	}
	return t, after
}

// occupant is the owner of a process; ours is false if it belongs to no attempt.
type occupant struct {
	run  runKey
	ours bool
}

func (t *deviceUse) put(who occupant, part usage) {
	if !who.ours {
		t.others.add(part)
		t.otherCount++
		return
	}
	known := t.jobs[who.run]
	known.add(part)
	t.jobs[who.run] = known
}

func (t deviceUse) empty() bool { return len(t.jobs) == 0 && t.otherCount == 0 }

// all sums up all use.
func (t deviceUse) all() usage {
	sum := t.others
	for _, j := range t.jobs {
		sum.add(j)
	}
	return sum
}

// idle reports whether contexts were there the whole time and none worked.
func (t deviceUse) idle() bool {
	sum := t.all()
	return sum.context >= 1 && sum.work == 0
}

func (t deviceUse) uses(id train.DeviceID, d time.Duration) []event.Use {
	var uses []event.Use
	use := func(who runKey, j usage) {
		uses = append(uses, event.Use{
			Job: who.job, Attempt: who.attempt, Component: event.ComponentGPU, Device: id, Work: j.work * d.Seconds(), Estimated: j.estimated,
			ContextSeconds: j.context * d.Seconds(), MemoryBytes: j.memory, ReservedRatio: t.reserved[who],
		})
	}
	for who, j := range t.jobs {
		use(who, j)
	}
	for who := range t.reserved {
		if _, there := t.jobs[who]; !there {
			use(who, usage{})
		}
	}
	slices.SortFunc(uses, func(a, b event.Use) int { return strings.Compare(string(a.Job), string(b.Job)) })
	return uses
}

// owners maps process numbers to attempts: for present processes, and for those that ended since the last reading.
type owners struct {
	now, before map[int]owned
	// began returns when a present process began, by the wall clock.
	began func(pid int) (time.Time, bool)
}

type owned struct {
	run   runKey
	start uint64
}

// of returns the owner of what a process did, last at the given time (zero if unknown). The number may have been
// given to another process since.
func (o owners) of(pid int, last time.Time) (runKey, bool) {
	now, ours := o.now[pid]
	then, was := o.before[pid]
	if !was || ours && now.start == then.start {
		return now.run, ours
	}
	began, lives := o.began(pid)
	if !lives || !last.IsZero() && last.Before(began) {
		return then.run, true
	}
	return now.run, ours
}
