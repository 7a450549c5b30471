package fit

import (
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// CheckEdit returns why the spec of a job does not change as asked; none if it does. The new spec is checked as a
// submission. A reason for which the present spec would be refused, too, such as a deadline that is over, is not the
// fault of the edit.
func CheckEdit(job train.Job, e train.Edit, who Identity, where Inventory, paths Paths) []train.Reason {
	switch job.State { //nolint:exhaustive // what failed or was cancelled may be resumed
	case train.StateSucceeded, train.StateRejected:
		return []train.Reason{{Code: "JobEnded", Message: "the job has ended: " + string(job.State)}}
	}
	reasons := mayChange(job, e)
	if len(reasons) > 0 {
		return reasons
	}
	next, err := job.Spec.Edited(e)
	if err != nil {
		return []train.Reason{{Code: "MalformedJSON", Message: err.Error()}}
	}
	present := Check(job.Spec, who, where, paths).Reasons
	for _, r := range Check(next, who, where, paths).Reasons {
		if !slices.Contains(present, r) {
			reasons = append(reasons, r)
		}
	}
	limit := time.Duration(next.TimeLimit)
	if run := job.RunSecondsAt(who.At); limit > 0 && limit != time.Duration(job.Spec.TimeLimit) && limit.Seconds() <= run {
		reasons = append(reasons, train.Reason{
			Code: "OutOfRange", Field: "time_limit", Message: "the job has run for longer than " + next.TimeLimit.String() + " already",
			Hint: "`switchyard cancel " + string(job.ID) + "` ends it",
		})
	}
	return reasons
}

// mayChange returns why keys do not change, whatever their values.
func mayChange(job train.Job, e train.Edit) []train.Reason {
	keys := e.Keys()
	if len(keys) == 0 {
		return []train.Reason{{Code: "NothingToChange", Message: "want a key in set or unset"}}
	}
	var reasons []train.Reason
	table := train.EditableKeys()
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		i := slices.IndexFunc(table, func(k train.EditableKey) bool { return k.Key == key })
		fixed := train.Fixed(key)
		switch {
		case fixed != nil:
			reasons = append(reasons, *fixed)
		case i < 0:
			reasons = append(reasons, train.Reason{Code: "UnknownField", Field: "unset", Message: "no such key: " + quote(key), Hint: "a job has the keys of docs/job-file.md"})
		case table[i].Waiting && job.State.Active():
			reasons = append(reasons, train.Reason{
				Code: "NotWhileRunning", Field: key, Message: "changes only while the job waits, and it is " + string(job.State),
				Hint: strings.ReplaceAll("`switchyard pause --wait ID`, set it, then `switchyard resume ID`", "ID", string(job.ID)),
			})
		}
	}
	return reasons
}
