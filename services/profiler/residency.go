package profiler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// residency records which jobs were on which device at what time, and finds the co-runners of ended epochs. It
// follows from the facts alone.
type residency struct {
	at   map[deviceKey][]*interval
	live map[train.JobID]*interval
}

// deviceKey identifies a device.
type deviceKey struct {
	node   train.NodeID
	device train.DeviceID
}

// interval is the time of one attempt on its devices.
type interval struct {
	job    train.JobID
	kind   curve.Kind
	places []deviceKey
	// limited is set if the attempt cannot get more memory than its share, whatever the others use.
	limited bool
	// silent is set for a pod of no job: it reports no epochs, and no earlier ones of others matter for it.
	silent bool
	// since is when the attempt started, until when it ended; zero while it runs.
	since, until time.Time
	// trains is when the first reported epoch began: before that the attempt loads, and slows others down
	// differently. It is zero until an epoch is reported.
	trains time.Time
	// epochAt is when its last epoch ended.
	epochAt time.Time
	partial
}

// partial sums up epochs with the same co-runners that are too short for a measurement yet.
type partial struct {
	coRunners      string
	seconds, steps float64
}

// measurement is the step time of a job alone on some devices, or beside co-runners that were there all the time. On
// several devices it is the step time of the slowest one.
type measurement struct {
	places []deviceKey
	self   curve.Kind
	// coRunners are the different sets of kinds on its devices; it is empty if the job was alone.
	coRunners   [][]curve.Kind
	stepSeconds float64
}

// measureSeconds is how much training makes a measurement: short epochs vary, and the first epochs of an attempt are
// slow.
const measureSeconds = 60

func newResidency() *residency {
	return &residency{at: map[deviceKey][]*interval{}, live: map[train.JobID]*interval{}}
}

// started records the start of an attempt on some devices.
func (r *residency) started(job train.JobID, kind curve.Kind, at []deviceKey, since time.Time) *interval {
	r.ended(job, since)
	nodes := map[train.NodeID]bool{}
	for _, p := range at {
		nodes[p.node] = true
	}
	iv := &interval{job: job, kind: kind.On(len(at), len(nodes)), places: at, since: since, epochAt: since}
	r.live[job] = iv
	for _, p := range at {
		r.at[p] = append(r.at[p], iv)
	}
	return iv
}

// ended records the end of a job's running attempt.
func (r *residency) ended(job train.JobID, until time.Time) {
	iv := r.live[job]
	if iv == nil {
		return
	}
	iv.until = until
	delete(r.live, job)
	r.prune(iv)
}

// prune drops ended intervals on the devices of iv that no later epoch can overlap.
func (r *residency) prune(iv *interval) {
	for _, at := range iv.places {
		oldest := r.oldest(at)
		r.at[at] = slices.DeleteFunc(r.at[at], func(o *interval) bool {
			return !o.until.IsZero() && (oldest.IsZero() || !o.until.After(oldest))
		})
		if len(r.at[at]) == 0 {
			delete(r.at, at)
		}
	}
}

// oldest returns the earliest time at which the next epochs may have begun, of the attempts on a device and of their
// co-runners elsewhere; zero if there are none.
func (r *residency) oldest(at deviceKey) time.Time {
	var oldest time.Time
	for _, here := range r.at[at] {
		if !here.until.IsZero() {
			continue
		}
		for _, p := range here.places {
			for _, o := range r.at[p] {
				if o.until.IsZero() && !o.silent && (oldest.IsZero() || o.epochAt.Before(oldest)) {
					oldest = o.epochAt
				}
			}
		}
	}
	return oldest
}

// epochEnded records an epoch that took seconds, on devices whose micro-batches have been unchanged since
// batchesSince. It returns false if the epoch gives no measurement: a co-runner came or went meanwhile, a micro-batch
// was tried, or the epochs with these co-runners are too short.
func (r *residency) epochEnded(job train.JobID, at, batchesSince time.Time, seconds, stepSeconds float64) (measurement, bool) {
	iv := r.live[job]
	if iv == nil || !(seconds > 0) || !(stepSeconds > 0) {
		return measurement{}, false
	}
	begun := at.Add(-time.Duration(seconds * float64(time.Second)))
	first := iv.trains.IsZero()
	if first {
		iv.trains = begun
	}
	iv.epochAt = at
	coRunners, steady := r.steadyCoRunners(iv, begun, at)
	r.prune(iv)
	if !steady || batchesSince.After(begun) || first && seconds < measureSeconds {
		iv.partial = partial{}
		return measurement{}, false
	}
	names, kinds := describe(coRunners)
	if names != iv.coRunners {
		iv.partial = partial{coRunners: names}
	}
	iv.seconds, iv.steps = iv.seconds+seconds, iv.steps+seconds/stepSeconds
	if iv.seconds < measureSeconds {
		return measurement{}, false
	}
	m := measurement{places: iv.places, self: iv.kind, coRunners: kinds, stepSeconds: iv.seconds / iv.steps}
	iv.partial = partial{coRunners: iv.coRunners}
	return m, true
}

// describe returns the names and the kinds of co-runners.
func describe(coRunners [][]*interval) (string, [][]curve.Kind) {
	var names strings.Builder
	kinds := make([][]curve.Kind, len(coRunners))
	for i, others := range coRunners {
		for _, o := range others {
			fmt.Fprintf(&names, "%d %s ", i, o.job)
			kinds[i] = append(kinds[i], o.kind)
		}
	}
	return names.String(), kinds
}

// steadyCoRunners returns the co-runners of an interval if they trained the whole time and have no co-runners of
// another kind elsewhere: a co-runner that is slowed down elsewhere disturbs less here.
func (r *residency) steadyCoRunners(iv *interval, from, to time.Time) (coRunners [][]*interval, steady bool) {
	coRunners, steady = r.coRunners(iv, from, to)
	for _, o := range slices.Concat(coRunners...) {
		its, all := r.coRunners(o, from, to)
		steady = steady && all && len(its) == 1
	}
	return coRunners, steady
}

// coRunners returns the attempts that trained beside an interval the whole time, for each of its devices; sets that are
// equal by kind appear once. It returns false if an attempt was there only for a part of the time. A device without
// co-runners slows nothing down and is left out.
func (r *residency) coRunners(iv *interval, from, to time.Time) (coRunners [][]*interval, known bool) {
	for _, p := range iv.places {
		here, all := r.coRunnersOn(iv, p, from, to)
		if !all {
			return nil, false
		}
		alike := func(others []*interval) bool {
			return slices.EqualFunc(here, others, func(x, y *interval) bool { return x.kind == y.kind })
		}
		if len(here) > 0 && !slices.ContainsFunc(coRunners, alike) {
			coRunners = append(coRunners, here)
		}
	}
	return coRunners, true
}

// coRunnersOn returns the attempts that trained on one device beside an interval the whole time, ordered by kind. It
// returns false if an attempt was there only for a part of the time.
func (r *residency) coRunnersOn(iv *interval, at deviceKey, from, to time.Time) (others []*interval, all bool) {
	for _, o := range r.at[at] {
		switch {
		case o == iv, !o.since.Before(to), !o.until.IsZero() && !o.until.After(from):
		case o.trains.IsZero() || o.trains.After(from) || !o.until.IsZero() && o.until.Before(to):
			return nil, false
		default:
			others = append(others, o)
		}
	}
	slices.SortFunc(others, func(x, y *interval) int {
		return cmp.Or(curve.CompareKinds(x.kind, y.kind), cmp.Compare(x.job, y.job))
	})
	return others, true
}

// outOfMemory returns a measurement without a step time for a job that has just run out of memory beside a single
// co-runner. It returns false if the job was alone or had several co-runners on its devices, because then the culprit
// is unknown. A job that is limited to its share has run out of that alone.
func (r *residency) outOfMemory(job train.JobID) (measurement, bool) {
	iv := r.live[job]
	if iv == nil || iv.limited {
		return measurement{}, false
	}
	var others []*interval
	for _, p := range iv.places {
		for _, o := range r.at[p] {
			if o != iv && o.until.IsZero() && !slices.Contains(others, o) {
				others = append(others, o)
			}
		}
	}
	if len(others) != 1 {
		return measurement{}, false
	}
	return measurement{places: iv.places, self: iv.kind, coRunners: [][]curve.Kind{{others[0].kind}}}, true
}
