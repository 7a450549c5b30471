package notice

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestWhatIsTold(t *testing.T) {
	now := time.Unix(10_000, 0)
	before, after := now.Add(-time.Hour), now.Add(time.Hour)
	to := func(on ...train.NoticeKind) []train.NotifySpec {
		return []train.NotifySpec{{On: on, Webhook: "https://x"}}
	}
	all := to(train.NoticeKinds()...)
	job := func(change func(*train.Job)) train.Job {
		j := train.Job{ID: "a", State: train.StateRunning, AdmittedAt: before, Spec: train.Spec{Notify: all}}
		change(&j)
		return j
	}
	for _, c := range []struct {
		name  string
		job   train.Job
		facts Facts
		want  []string
	}{
		{"a job that runs", job(func(*train.Job) {}), Facts{}, nil},
		{"success", job(func(j *train.Job) { j.State = train.StateSucceeded }), Facts{}, []string{"ended job/a/end/0"}},
		{"failure, once", job(func(j *train.Job) { j.State = train.StateFailed }), Facts{}, []string{"failed job/a/end/0"}},
		{"failure of whoever wants ends", job(func(j *train.Job) { j.State, j.Spec.Notify = train.StateFailed, to() }), Facts{}, []string{"failed job/a/end/0"}},
		{"success of whoever wants failures", job(func(j *train.Job) { j.State, j.Spec.Notify = train.StateSucceeded, to("failed") }), Facts{}, nil},
		{"a refusal", job(func(j *train.Job) { j.State = train.StateRejected }), Facts{}, nil},
		{"not admitted yet", job(func(j *train.Job) { j.AdmittedAt, j.Spec.Deadline = time.Time{}, &before }), Facts{}, nil},
		{"preempted twice", job(func(j *train.Job) { j.Preemptions = 2 }), Facts{}, []string{"preempted job/a/preempted/2/0"}},
		{"silent", job(func(j *train.Job) { j.Attempt = 3 }), Facts{Silent: &train.Reason{Code: "Silent"}}, []string{"silent job/a/silent/3/0"}},
		{"late", job(func(j *train.Job) { j.Spec.Deadline = &before }), Facts{}, []string{"late job/a/late/0"}},
		{"in time so far", job(func(j *train.Job) { j.Spec.Deadline = &after }), Facts{}, nil},
		{"ended in time", job(func(j *train.Job) {
			j.State, j.Spec.Deadline, j.FinishedAt = train.StateSucceeded, &before, before.Add(-time.Second)
		}), Facts{}, []string{"ended job/a/end/0"}},
		{"the user's own", job(func(j *train.Job) { j.State, j.Spec.Notify = train.StateCancelled, to("late", "ended") }), Facts{Own: to()}, []string{
			"ended job/a/end/0", "ended job/a/end/1",
		}},
		{"nobody", job(func(j *train.Job) { j.State, j.Spec.Notify = train.StateFailed, nil }), Facts{}, nil},
	} {
		var got []string
		for _, n := range Of(c.job, c.facts, now) {
			got = append(got, fmt.Sprintf("%s %s", n.On, n.Key))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
