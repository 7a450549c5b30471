package register

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Differences returns in words how a stored record differs from the fold of its job's facts. Their newest facts may
// differ, and so may the times of edits: the answer to an edit is in the record before it is a fact. The signature is
// not compared, since not every process that compares can sign. Neither is what another version may have made otherwise
// of the same facts: their words, the hash of the spec, and when a job of an array counts as submitted.
func Differences(stored, folded train.Job) []string {
	have, want := fields(stored), fields(folded)
	var found []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if string(have[name]) != string(want[name]) {
			found = append(found, fmt.Sprintf("%s: %s is %s, but the facts make it %s", stored.ID, name, short(have[name]), short(want[name])))
		}
		delete(have, name)
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		found = append(found, fmt.Sprintf("%s: %s is %s, but the facts do not set it", stored.ID, name, short(have[name])))
	}
	return found
}

func fields(job train.Job) map[string]json.RawMessage {
	job.LastSequence, job.Seal, job.SpecHash, job.Message, job.Hint, job.Edits, job.History = 0, nil, "", "", "", slices.Clone(job.Edits), slices.Clone(job.History)
	for i := range job.Edits {
		job.Edits[i].At = time.Time{}
	}
	for i := range job.History {
		job.History[i].Message = ""
	}
	if job.Spec.ArrayMember != nil {
		unsubmitted(&job)
	}
	data, err := json.Marshal(job)
	if err != nil {
		return nil
	}
	all := map[string]json.RawMessage{}
	_ = json.Unmarshal(data, &all)
	return all
}

// unsubmitted takes the time of its submission out of a record.
func unsubmitted(job *train.Job) {
	for i, c := range job.History {
		if c.Fact == event.FactSubmitted {
			job.History[i].At = time.Time{}
		}
	}
	if job.Since.Equal(job.SubmittedAt) {
		job.Since = time.Time{}
	}
	job.SubmittedAt = time.Time{}
}

func short(value json.RawMessage) string {
	if value == nil {
		return "missing"
	}
	return clip(string(value), 80)
}
