package chaos

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/register"
)

// Invariants returns what must hold through all faults, by name.
func Invariants() [][2]string {
	return [][2]string{
		{"I1", "an acknowledged submission exists and ends in exactly one terminal fact, as its code ended"},
		{"I2", "an attempt is started once, and the next one after its end; no attempt is lost or redone without a kill"},
		{"I3", "no device is held twice"},
		{"I4", "generations of plans and numbers of attempts never fall"},
		{"I5", "the facts of a job fold to its record, which says what its processes did"},
		{"I6", "measured = attributed + idle + unattributed; intervals are disjoint; one account for each job"},
		{"I7", "what was acknowledged is stored under its sequence, and no sequence is missing"},
		{"I8", "after the faults nothing is left: live job, process, open attempt, message that waits or is poison, part that is not ready"},
	}
}

// Violation is a breach of an invariant.
type Violation struct {
	Invariant string
	Text      string
}

// Fact is a stored fact of a job. Fact.Body is nil if it could not be decoded.
type Fact struct {
	Job train.JobID
	register.Fact
}

// Interval is the time that a node metered under a number, which starts again with each boot.
type Interval struct {
	Node     train.NodeID
	Boot     string
	Sequence uint64
	From, To time.Time
}

// World is what the bus and the machine say at the end.
type World struct {
	// Facts are those of all jobs in the order of the stream, First and Last bound its sequences.
	Facts       []Fact
	First, Last uint64
	// Plans are the generations in their stream.
	Plans     []uint64
	Register  map[train.JobID]train.Job
	Attempts  map[train.JobID]train.Attempt
	Books     []contract.Book
	Intervals []Interval
	// Accounts counts the final accounts of each job.
	Accounts map[train.JobID]int
	// Unhandled is the age of the oldest message that a consumer has not handled, Poison the reasons of those that cannot
	// be.
	Unhandled map[string]time.Duration
	Poison    []string
	// Processes are those of jobs that still live. Unready has what the parts say that are not ready.
	Processes []int
	Unready   map[string]string
}

// judge collects violations.
type judge struct {
	w World
	*runs
	jobs  map[train.JobID]Entry
	acked map[train.JobID]uint64
	facts map[train.JobID][]Fact
	// announced says that the system has spoken of damage: then what is lost is no breach, but all that is left is judged.
	announced bool
	// noRoom are the times in which trainers could not save, and may have ended for that. wrongClock says that a clock
	// was set: times of day then say nothing about order.
	noRoom     [][2]float64
	wrongClock bool
}

// Judge lists every violation that the ledger and the world show.
func Judge(entries []Entry, w World) []Violation {
	j := &judge{w: w, runs: judgeRuns(entries), jobs: map[train.JobID]Entry{}, acked: map[train.JobID]uint64{}, facts: map[train.JobID][]Fact{}}
	for _, e := range entries {
		switch id := train.JobID(e.Job); e.Event {
		case Submitted:
			j.jobs[id] = e
		case Acked:
			j.acked[id] = e.Sequence
		case Announced:
			j.announced = true
		case Fault, Healed:
			j.fault(e)
		}
	}
	for _, f := range w.Facts {
		j.facts[f.Job] = append(j.facts[f.Job], f)
	}
	for _, id := range slices.Sorted(maps.Keys(j.jobs)) {
		j.job(id, j.jobs[id])
		j.attempt(id)
		j.folded(id)
	}
	j.order()
	j.energy()
	j.stream()
	j.rest()
	slices.SortStableFunc(j.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Invariant, b.Invariant), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(j.found)
}

// The faults that explain what would be a violation without them.
const (
	DiskFull = "disk full"
	ClockSet = "clock back an hour"
)

func (j *judge) fault(e Entry) {
	const seen = 60 // seconds until the end of a trainer is a fact, once the bus can store it
	switch {
	case e.Text == ClockSet:
		j.wrongClock = true
	case e.Text == DiskFull && e.Event == Fault:
		j.noRoom = append(j.noRoom, [2]float64{e.Seconds, e.Seconds})
	case e.Text == DiskFull && len(j.noRoom) > 0:
		j.noRoom[len(j.noRoom)-1][1] = e.Seconds + seen
	}
}

// hadRoom says whether trainers could save at a time.
func (j *judge) hadRoom(at time.Time) bool {
	second := float64(at.UnixMicro()) / 1e6
	return !slices.ContainsFunc(j.noRoom, func(r [2]float64) bool { return r[0] <= second && second <= r[1] })
}

// job judges the life of a job: I1.
func (j *judge) job(id train.JobID, asked Entry) {
	sequence := j.acked[id]
	record, known := j.w.Register[id]
	ends, submitted := 0, false
	for _, f := range j.facts[id] {
		submitted = submitted || f.Name == event.FactSubmitted
		if train.State(f.Name).Terminal() {
			ends++
		}
	}
	if !submitted && (sequence == 0 || j.announced) {
		return
	}
	switch {
	case !known:
		j.breaks("I1", "job %s was acknowledged (sequence %d) and has no record", id, sequence)
	case !record.State.Terminal():
		j.breaks("I1", "job %s has not ended: %s, attempt %d, %d epochs: %s", id, record.State, record.Attempt, record.EpochsDone, record.Message)
	case !j.mayEnd(asked, record.State):
		j.breaks("I1", "job %s ended as %s after %d epochs (%s), want one of %v", id, record.State, record.EpochsDone, record.Message, asked.Ends)
	case ends != 1 && !j.announced:
		j.breaks("I1", "job %s has %d terminal facts, want 1", id, ends)
	case record.State == train.StateSucceeded && asked.Epochs > 0:
		j.epochs(asked.Job, asked.Epochs)
		if record.EpochsDone != asked.Epochs {
			j.breaks("I5", "job %s succeeded with %d epochs in its record, its code did %d", id, record.EpochsDone, asked.Epochs)
		}
	}
}

// mayEnd reports whether a job may end in a state.
func (j *judge) mayEnd(asked Entry, state train.State) bool {
	return slices.Contains(asked.Ends, state) || state == train.StateFailed && j.mayFail(asked.Job)
}

// attempt judges the attempts of a job: I2 and I4.
func (j *judge) attempt(id train.JobID) {
	lost, last := 0, 0
	var generation uint64
	for _, f := range j.facts[id] {
		switch b := f.Body.(type) {
		case *event.AttemptLost:
			if j.hadRoom(f.Time) {
				lost++
			}
		case *event.Started:
			if b.Attempt <= last || b.Generation < generation {
				j.breaks("I4", "job %s: attempt %d of generation %d was started after attempt %d of generation %d", id, b.Attempt, b.Generation, last, generation)
			}
			last, generation = b.Attempt, b.Generation
		}
	}
	if lost > j.kills[string(id)] {
		j.breaks("I2", "job %s lost %d attempts although %d of its processes were killed", id, lost, j.kills[string(id)])
	}
	if record, known := j.w.Register[id]; known && j.attempts[string(id)] > record.Attempt {
		j.breaks("I5", "job %s began attempt %d, its record knows of %d", id, j.attempts[string(id)], record.Attempt)
	}
}

// folded folds the facts of a job again: I5.
func (j *judge) folded(id train.JobID) {
	record, known := j.w.Register[id]
	if !known || j.announced {
		return
	}
	again := train.Job{ID: id}
	for _, f := range j.facts[id] {
		if next, err := register.Fold(again, f.Fact); err == nil { // a fact that cannot have happened changes nothing
			again = next
		}
	}
	for _, key := range differing(record, again) {
		j.breaks("I5", "job %s: its record and the fold of its facts differ in %s", id, key)
	}
}

// differing returns the keys of a record and of a fold whose values differ, with both.
func differing(record, fold train.Job) []string {
	var keys []string
	have, want := parts(record), parts(fold)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if !bytes.Equal(have[key], want[key]) {
			keys = append(keys, fmt.Sprintf("%s: %.150s, %.150s", key, have[key], want[key]))
		}
		delete(have, key)
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		keys = append(keys, fmt.Sprintf("%s: %.150s, nothing", key, have[key]))
	}
	return keys
}

// parts returns the keys of a job's record.
func parts(j train.Job) map[string]json.RawMessage {
	data, err := json.Marshal(j)
	all := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		all["error"] = json.RawMessage(err.Error())
	}
	return all
}

// order judges what must rise: I4.
func (j *judge) order() {
	for i, generation := range j.w.Plans[min(1, len(j.w.Plans)):] {
		if generation <= j.w.Plans[i] {
			j.breaks("I4", "plan %d came after plan %d", generation, j.w.Plans[i])
		}
	}
}

// energy judges the books: I6.
func (j *judge) energy() {
	for _, b := range j.w.Books {
		for component, t := range b.Totals {
			if t.Measured != t.Attributed+t.Idle+t.Unattributed {
				j.breaks("I6", "node %s, %s: measured %d µJ, but %d attributed + %d idle + %d unattributed", b.Node, component, t.Measured, t.Attributed, t.Idle, t.Unattributed)
			}
		}
	}
	type boot struct {
		node train.NodeID
		id   string
	}
	before := map[boot]Interval{}
	for _, i := range j.w.Intervals {
		at := boot{i.Node, i.Boot}
		if b, any := before[at]; any && (i.Sequence <= b.Sequence || i.From.Before(b.To) && !j.wrongClock) {
			j.breaks("I6", "node %s, boot %s: interval %d from %s overlaps %d until %s", i.Node, i.Boot, i.Sequence, i.From, b.Sequence, b.To)
		}
		before[at] = i
	}
	for id := range j.jobs {
		n, ran := j.w.Accounts[id], j.attempts[string(id)] > 0
		if _, known := j.w.Register[id]; known && (n > 1 || ran && n == 0) {
			j.breaks("I6", "job %s has %d final accounts, want 1", id, n)
		}
	}
}

// stream judges what is stored: I7.
func (j *judge) stream() {
	if j.announced {
		return
	}
	stored := map[uint64]Fact{}
	for _, f := range j.w.Facts {
		stored[f.Sequence] = f
	}
	for id, sequence := range j.acked {
		if f := stored[sequence]; f.Job != id || f.Name != event.FactSubmitted {
			j.breaks("I7", "job %s was acknowledged as message %d, which is %q of %q", id, sequence, f.Name, f.Job)
		}
	}
	if want := j.w.Last - j.w.First + 1; len(j.w.Facts) > 0 && (j.w.First != 1 || uint64(len(j.w.Facts)) != want) {
		j.breaks("I7", "%d facts of jobs are stored, from sequence %d to %d: want all from 1 on", len(j.w.Facts), j.w.First, j.w.Last)
	}
	for _, f := range j.w.Facts {
		if f.Body == nil {
			j.breaks("I7", "message %d, %s of job %s, cannot be decoded", f.Sequence, f.Name, f.Job)
		}
	}
}

// unhandledMost is how long a message may wait for its consumer. Meters go on after the faults, and the ledger collects
// their intervals: there is always one that was stored just now.
const unhandledMost = 10 * time.Second

// rest judges what is left over: I8.
func (j *judge) rest() {
	if len(j.w.Processes) > 0 {
		j.breaks("I8", "processes %v are left over", j.w.Processes)
	}
	for id, a := range j.w.Attempts {
		if a.Outcome == "" || !a.Published {
			j.breaks("I8", "attempt %d of job %s holds %v: phase %s, outcome %q, published %t", a.Number, id, a.Devices, a.Phase, a.Outcome, a.Published)
		}
	}
	for consumer, age := range j.w.Unhandled {
		if age > unhandledMost {
			j.breaks("I8", "consumer %s has not handled a message for %s", consumer, age.Round(time.Second))
		}
	}
	for _, reason := range j.w.Poison {
		j.breaks("I8", "a message could not be handled: %s", reason)
	}
	for part, why := range j.w.Unready {
		j.breaks("I8", "%s is not ready: %s", part, why)
	}
}

// Verdict returns a line for each invariant, and the violations below.
func Verdict(found []Violation) string {
	var out bytes.Buffer
	for _, i := range Invariants() {
		n := 0
		for _, v := range found {
			if v.Invariant == i[0] {
				n++
			}
		}
		word := "holds "
		if n > 0 {
			word = fmt.Sprintf("BROKEN %d x", n)
		}
		fmt.Fprintf(&out, "%s  %-12s %s\n", i[0], word, i[1])
	}
	for _, v := range found {
		fmt.Fprintf(&out, "  %s: %s\n", v.Invariant, v.Text)
	}
	return out.String()
}
