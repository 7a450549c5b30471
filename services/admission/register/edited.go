package register

import (
	"fmt"
	"slices"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// maxEdits bounds the requests that a record remembers.
const maxEdits = 20

// edited folds an answer to a request to change the spec. Answers come in the order of their requests.
func edited(job *train.Job, f Fact, b *event.EditDecided) (changed bool, err error) {
	if n := len(job.Edits); n > 0 && b.Request <= job.Edits[n-1].Request {
		return false, nil
	}
	e := train.Edited{At: f.Time, Request: b.Request, ID: clip(b.ID, maxText/4), By: clip(b.By, maxText/4), Reason: clip(b.Reason, maxText/4)}
	if len(b.Refused) > 0 {
		e.Refused = bounded(b.Refused)
	} else {
		spec, err := job.Spec.Edited(b.Edit)
		if err != nil {
			return false, fmt.Errorf("fold job %s: %w", job.ID, err)
		}
		spec = spec.WithDefaults()
		for _, k := range train.Differences(job.Spec.WithDefaults(), spec) {
			e.Keys = append(e.Keys, train.KeyEdit{Key: k.Key, Before: clip(k.Before, maxText/4), After: clip(k.After, maxText/4)})
		}
		job.Spec = spec
	}
	first := max(len(job.Edits)+1-maxEdits, 0)
	job.Edits = append(slices.Clone(job.Edits[first:]), e)
	return true, nil
}
