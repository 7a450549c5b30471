package train

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MostMembers is the largest number of jobs of any array.
const MostMembers = 100_000

// Array is an array of jobs, as its text says.
type Array struct {
	// Indices ascend. AtOnce is how many of the jobs may run at once; 0: all.
	Indices []int
	AtOnce  int
}

// ArrayMember says which job of an array a job is. Admission sets it.
type ArrayMember struct {
	// Array is the id of the array, Index the number of this job in it, Count the number of its jobs.
	Array JobID `json:"array"`
	Index int   `json:"index"`
	Count int   `json:"count"`
	// AtOnce is how many of the jobs may run at once; left out: all.
	AtOnce int `json:"at_once,omitempty"`
}

// wantIndices says how the indices of an array are written.
const wantIndices = "want indices like 0-9, 0-99:10 or 1,3,7, and %%4 behind them for four jobs at once; found %.40q"

// ParseArray reads indices as 0-9, 0-99:10 or 1,3,7, and %4 after them: at most four jobs at once.
func ParseArray(text string) (Array, error) {
	ranges, most, limited := strings.Cut(text, "%")
	var a Array
	if limited {
		n, err := strconv.Atoi(most)
		if err != nil || n < 1 {
			return a, fmt.Errorf(wantIndices, "%"+most)
		}
		a.AtOnce = n
	}
	for part := range strings.SplitSeq(ranges, ",") {
		first, last, step, err := parseRange(part)
		if err == nil && (last-first)/step+1 > MostMembers-len(a.Indices) {
			err = fmt.Errorf("%.40q has more than %d jobs", text, MostMembers)
		}
		if err != nil {
			return Array{}, err
		}
		for i := first; i <= last; i += step {
			a.Indices = append(a.Indices, i)
		}
	}
	slices.Sort(a.Indices)
	a.Indices = slices.Compact(a.Indices)
	return a, nil
}

// parseRange reads FIRST, FIRST-LAST or FIRST-LAST:STEP.
func parseRange(text string) (first, last, step int, err error) {
	span, by, stepped := strings.Cut(text, ":")
	low, high, several := strings.Cut(span, "-")
	first, err = index(low)
	last, step = first, 1
	if err == nil && several {
		last, err = index(high)
	}
	if err == nil && stepped {
		step, err = index(by)
	}
	switch {
	case err != nil || step < 1 || stepped && !several:
		return 0, 0, 1, fmt.Errorf(wantIndices, text)
	case last < first:
		return 0, 0, 1, fmt.Errorf("%.40q ends before it begins: want the smaller index first", text)
	}
	return first, last, step, nil
}

// index reads a number without a sign.
func index(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err
}

// Members returns the ids of the jobs of an array, by their indices; none for any other job.
func (j Job) Members() []JobID {
	if j.Spec.Array == "" {
		return nil
	}
	a, err := ParseArray(j.Spec.Array)
	if err != nil {
		return nil
	}
	ids := make([]JobID, len(a.Indices))
	for i, index := range a.Indices {
		ids[i] = MemberID(j.ID, index)
	}
	return ids
}

// MemberID is the id of a job of an array.
func MemberID(array JobID, index int) JobID { return JobID(string(array) + "-" + strconv.Itoa(index)) }

// Belongs returns the array that the job is part of; empty if it is part of none. A job that was submitted again has
// the index of the first one and is on its own.
func (j Job) Belongs() JobID {
	if m := j.Spec.ArrayMember; m != nil && j.ID == MemberID(m.Array, m.Index) {
		return m.Array
	}
	return ""
}

// Member returns the spec of a job of an array. The array itself notifies people.
func (s Spec) Member(array JobID, a Array, index int) Spec {
	s.Array, s.Notify = "", nil
	s.ArrayMember = &ArrayMember{Array: array, Index: index, Count: len(a.Indices), AtOnce: a.AtOnce}
	return s
}

// dependencies returns the jobs that the job waits for: an array, which needs no devices, for its own jobs.
func (j Job) dependencies() []Dependency {
	if j.Spec.Array == "" {
		return j.Spec.Dependencies()
	}
	var all []Dependency
	for _, id := range j.Members() {
		all = append(all, Dependency{id, AfterAny})
	}
	return all
}

// ArrayEnd returns how an array ends once all its jobs have ended as Ended says.
func (j Job) ArrayEnd() State {
	count := j.endedAs()
	switch {
	case count[StateSucceeded] == len(j.Ended):
		return StateSucceeded
	case j.CancelRequested || count[StateFailed]+count[StateRejected] == 0:
		return StateCancelled
	}
	return StateFailed
}

// endedAs counts the jobs in Ended by their final states.
func (j Job) endedAs() map[State]int {
	count := map[State]int{}
	for _, s := range j.Ended {
		count[s]++
	}
	return count
}

// ArrayWords counts the jobs of an array that have ended, in words.
func (j Job) ArrayWords() string {
	count := j.endedAs()
	words := []string{fmt.Sprintf("%d of %d jobs have ended", len(j.Ended), len(j.Members()))}
	for _, s := range []State{StateSucceeded, StateFailed, StateCancelled, StateRejected} {
		if count[s] > 0 {
			words = append(words, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	return strings.Join(words, ", ")
}
