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

// tenant is what one attempt, or all strangers together, did on a device in an interval, as parts of its time.
type tenant struct {
	work, context float64
	memory        unit.Bytes
	estimated     bool
}

func (t *tenant) add(other tenant) {
	t.work += other.work
	t.context += other.context
	t.memory += other.memory
	t.estimated = t.estimated || other.estimated
}

// part is an equal part of what nobody can tell apart. Of the memory it has nothing: that may be somebody else's, and no job is to answer for it.
func (t tenant) part(of int) tenant {
	n := float64(of)
	return tenant{work: t.work / n, context: t.context / n, estimated: t.estimated || of > 1}
}

// tenants are all that used a device, and by what part the attempts that it is planned for keep it.
type tenants struct {
	jobs      map[run]tenant
	strangers tenant
	// crowd is how many processes are strangers'.
	crowd int
	kept  map[run]float64
}

// tenantsOf tells whose processes are on a device. before are the processes that had a context there at the interval's beginning, with their owners of then.
//
// A context that was seen at one end of the interval only counts half. An attempt that holds the device is a tenant as soon as something unknown runs on it:
// the processes of a container may have numbers of their own. What is unknown on a device that attempts share is theirs in equal parts.
func tenantsOf(id train.DeviceID, s gpu.Sample, before map[int]occupant, owners owners, attempts []train.Attempt) (tenants, map[int]occupant) {
	t := tenants{jobs: map[run]tenant{}, kept: map[run]float64{}}
	after, crowds := map[int]occupant{}, map[int]int{}
	for _, p := range s.Processes {
		crowds[p.Slice]++
	}
	for _, p := range s.Processes {
		who, ours := owners.of(p.PID, p.LastWork)
		part := tenant{work: p.Utilisation, memory: p.Memory}
		if p.SliceSize > 0 {
			// Of a part nothing is sampled: it stands for its size, in equal parts for all on it.
			part.work, part.estimated = float64(p.SliceSize)/gpu.MostSlices/float64(crowds[p.Slice]), true
		}
		if p.Context {
			part.context = 0.5
			after[p.PID] = occupant{who, ours}
		}
		t.put(occupant{who, ours}, part)
	}
	for _, then := range before {
		t.put(then, tenant{context: 0.5})
	}
	holders := slices.DeleteFunc(slices.Clone(attempts), func(a train.Attempt) bool {
		return !slices.ContainsFunc(a.Devices, func(d train.DeviceID) bool { return d.Board() == id })
	})
	if t.crowd > 0 && len(t.jobs) == 0 && len(holders) > 0 {
		for _, a := range holders {
			t.jobs[runOf(a)] = t.strangers.part(len(holders))
		}
		t.strangers, t.crowd = tenant{}, 0
	}
	for _, a := range holders {
		t.kept[runOf(a)] = 1 / float64(len(holders))
	}
	return t, after
}

// occupant is whose a process is; not ours for a stranger.
type occupant struct {
	run  run
	ours bool
}

func (t *tenants) put(who occupant, part tenant) {
	if !who.ours {
		t.strangers.add(part)
		t.crowd++
		return
	}
	known := t.jobs[who.run]
	known.add(part)
	t.jobs[who.run] = known
}

func (t tenants) empty() bool { return len(t.jobs) == 0 && t.crowd == 0 }

// all is what everybody did together.
func (t tenants) all() tenant {
	sum := t.strangers
	for _, j := range t.jobs {
		sum.add(j)
	}
	return sum
}

// lull says whether contexts were there all the time and none worked.
func (t tenants) lull() bool {
	sum := t.all()
	return sum.context >= 1 && sum.work == 0
}

func (t tenants) uses(id train.DeviceID, d time.Duration) []event.Use {
	var uses []event.Use
	use := func(who run, j tenant) {
		uses = append(uses, event.Use{
			Job: who.job, Attempt: who.attempt, Component: event.ComponentGPU, Device: id, Work: j.work * d.Seconds(), Estimated: j.estimated,
			ContextSeconds: j.context * d.Seconds(), MemoryBytes: j.memory, ReservedRatio: t.kept[who],
		})
	}
	for who, j := range t.jobs {
		use(who, j)
	}
	for who := range t.kept {
		if _, there := t.jobs[who]; !there {
			use(who, tenant{})
		}
	}
	slices.SortFunc(uses, func(a, b event.Use) int { return strings.Compare(string(a.Job), string(b.Job)) })
	return uses
}

// owners tells whose process a number is: of the processes that there are, and of those that ended since the last reading.
type owners struct {
	now, before map[int]owned
	// began is when each process that there is began, by the wall clock.
	began func(pid int) (time.Time, bool)
}

type owned struct {
	run   run
	start uint64
}

// of gives the owner of what a process did, lastly at a time (zero where that is not known). The number may have been given to another process since.
func (o owners) of(pid int, last time.Time) (run, bool) {
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
