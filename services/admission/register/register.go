// Package register folds the facts of a job into its record, on which people, the planner and the executor rely. The
// fold is pure and may be repeated: a fact that was folded before changes nothing, nor does a fact that cannot have
// happened. The package does not decide whether a submission is accepted.
package register

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Fact is one fact of a job as the register sees it.
type Fact struct {
	Name string
	// Time is when it happened, Sequence its place in the stream.
	Time     time.Time
	Sequence uint64
	// Body is the type that event.Kind.New returns, e.g. *event.Started.
	Body any
}

// ErrIllegal marks a fact that cannot happen in the job's state; it changed nothing.
var ErrIllegal = train.ErrIllegal

// errBody marks a body that does not belong to the fact.
var errBody = errors.New("body of another fact")

// Bounds that keep a record small whatever the facts hold.
const (
	MaxHistory  = 200
	maxWarnings = 20
	maxBlockers = 50
	maxText     = 2000
	maxLogTail  = 8 << 10
)

// Fold returns the record after the fact. For a new job it starts from train.Job{ID: id}. Repeated and late facts
// change nothing at all, not even LastSequence; neither does any fact in a terminal state but an edit and the wish to
// resume.
func Fold(job train.Job, f Fact) (train.Job, error) {
	if f.Sequence <= job.LastSequence || job.State.Terminal() && f.Name != event.FactWanted && f.Name != event.FactEditDecided {
		return job, nil
	}
	kind, known := event.Find(event.Subject{Entity: "job", Fact: f.Name, Version: 1})
	if !known || reflect.TypeOf(f.Body) != reflect.TypeOf(kind.New()) {
		return job, fmt.Errorf("fold job %s: fact %s: %w: %T", job.ID, f.Name, errBody, f.Body)
	}
	if b, ok := f.Body.(*event.Conflicted); ok { // about another submission: legal in every state
		job.LastSequence = f.Sequence
		warn(&job, b.Message)
		return job, nil
	}
	state, err := train.Next(job.State, f.Name)
	if err != nil {
		return job, fmt.Errorf("fold job %s: %w", job.ID, err)
	}
	next := job
	changed, err := apply(&next, f, &state)
	if err != nil || !changed {
		return job, err
	}
	state = state.Under(next.Wants())
	moved := state != job.State
	next.State, next.LastSequence = state, f.Sequence
	if moved {
		next.Since = f.Time
	}
	if !waits(state) && state != train.StateRejected {
		next.Blockers = nil
	}
	if remembered(job, next, f.Name, moved) {
		next.History = remember(next, f)
	}
	return next, nil
}

// Hash identifies a submission: two submissions with the same hash ask for the same.
func Hash(spec train.Spec) (string, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("hash the spec of %q: %w", spec.Name, err)
	}
	return HashBytes(data), nil
}

// HashBytes identifies an unreadable submission.
func HashBytes(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func waits(s train.State) bool { return !s.Terminal() && !s.Active() }

// remembered reports whether a fact belongs in the history: changes of the state or the allocation, but not each epoch
// or each repeated wait.
func remembered(before, after train.Job, fact string, moved bool) bool {
	switch fact {
	case event.FactQueued:
		return moved || before.Reason != after.Reason
	case event.FactDependencyEnded:
		return moved || after.Spec.Array == "" // an array has many
	case event.FactEpochEnded, event.FactCheckpointWritten, event.FactReestimated, event.FactStraggling, event.FactConverged, event.FactOverspent, event.FactEditDecided:
		return moved
	}
	return true
}

func remember(job train.Job, f Fact) []train.Change {
	change := train.Change{
		At: f.Time, Fact: f.Name, State: job.State, Attempt: job.Attempt, Devices: job.Devices, Epochs: job.EpochsDone,
		Reason: job.Reason, Message: clip(job.Message, maxText/4),
	}
	first := max(len(job.History)+1-MaxHistory, 0)
	return append(slices.Clone(job.History[first:]), change)
}

// explain sets the words that explain the job's state.
func explain(job *train.Job, reason, message, hint string) {
	job.Reason, job.Message, job.Hint = clip(reason, maxText/4), clip(message, maxText), clip(hint, maxText)
}

// warn adds a warning once; if there are too many the oldest goes.
func warn(job *train.Job, text string) {
	text = clip(text, maxText/4)
	if text == "" || slices.Contains(job.Warnings, text) {
		return
	}
	first := max(len(job.Warnings)+1-maxWarnings, 0)
	job.Warnings = append(slices.Clone(job.Warnings[first:]), text)
}

// clip cuts s at a rune boundary within n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = ".."
	cut := 0
	for i := range s {
		if i > n-len(mark) {
			break
		}
		cut = i
	}
	return s[:cut] + mark
}

func clipTail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if len(s)-i <= n {
			return s[i:]
		}
	}
	return ""
}
