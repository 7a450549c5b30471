// Package notice decides who is notified of what about a job. It delivers nothing.
package notice

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Notice is a message about a job to one recipient.
type Notice struct {
	// Key is the same whenever the notice is sent: a receiver that gets it twice can tell.
	Key    string           `json:"key"`
	On     train.NoticeKind `json:"on"`
	Job    train.JobID      `json:"job"`
	Name   string           `json:"name"`
	User   string           `json:"user"`
	State  train.State      `json:"state"`
	Reason string           `json:"reason,omitempty"`
	// Message is for people.
	Message    string    `json:"message"`
	Hint       string    `json:"hint,omitempty"`
	At         time.Time `json:"at"`
	EpochsDone int       `json:"epochs_done"`
	RunSeconds float64   `json:"run_seconds"`

	To train.NotifySpec `json:"-"`
}

// Facts complete the record of a job.
type Facts struct {
	// Silent is the reason of an attempt whose code has gone silent; nil if it has not.
	Silent *train.Reason
	// Own are the targets of the job's user, by the operator's configuration.
	Own []train.NotifySpec
}

// Of returns all notices about a job as it is now, including those that were sent before.
func Of(j train.Job, f Facts, now time.Time) []Notice {
	targets := append(slices.Clip(j.Spec.Notify), f.Own...)
	if len(targets) == 0 || j.State == train.StateRejected || j.AdmittedAt.IsZero() {
		return nil
	}
	var all []Notice
	for _, h := range happened(j, f, now) {
		for i, to := range targets {
			if !to.Wants(h.On) && !(h.On == train.NoticeFailed && to.Wants(train.NoticeEnded)) {
				continue
			}
			n := h
			n.Key, n.To = fmt.Sprintf("job/%s/%s/%d", j.ID, h.Key, i), to
			all = append(all, n)
		}
	}
	return all
}

// happened lists what happened to a job, as notices without recipients. Whatever a process missed is in the record: the
// count of preemptions and the state stay.
func happened(j train.Job, f Facts, now time.Time) []Notice {
	base := Notice{
		Job: j.ID, Name: j.Spec.Name, User: j.Spec.User, State: j.State, Reason: j.Reason, Message: cmp.Or(j.Message, "job "+string(j.ID)+" "+string(j.State)),
		Hint: j.Hint, At: j.Since, EpochsDone: j.EpochsDone, RunSeconds: j.RunSecondsAt(now),
	}
	var all []Notice
	add := func(on train.NoticeKind, key string, change func(*Notice)) {
		n := base
		n.On, n.Key = on, key
		if change != nil {
			change(&n)
		}
		all = append(all, n)
	}
	if j.Preemptions > 0 && !j.State.Terminal() {
		add(train.NoticePreempted, fmt.Sprintf("preempted/%d", j.Preemptions), func(n *Notice) {
			n.Message = fmt.Sprintf("left its devices after %d epochs and goes on from its checkpoint (%d times so far); now %s: %s", j.EpochsDone, j.Preemptions, j.State, base.Message)
		})
	}
	if d := j.Spec.Deadline; d != nil && now.After(*d) && (!j.State.Terminal() || j.FinishedAt.After(*d)) {
		add(train.NoticeLate, "late", func(n *Notice) {
			n.At, n.Message = *d, fmt.Sprintf("its deadline %s has passed; it is %s", d.UTC().Format(time.RFC3339), j.State)
		})
	}
	if f.Silent != nil {
		add(train.NoticeSilent, fmt.Sprintf("silent/%d", j.Attempt), func(n *Notice) {
			n.Reason, n.Message, n.Hint, n.At = f.Silent.Code, f.Silent.Message, f.Silent.Hint, now
		})
	}
	switch {
	case j.State == train.StateFailed:
		add(train.NoticeFailed, "end", func(n *Notice) { n.At = j.FinishedAt })
	case j.State.Terminal():
		add(train.NoticeEnded, "end", func(n *Notice) { n.At = j.FinishedAt })
	}
	return all
}

// Subject is the notice in one line.
func (n Notice) Subject() string { return fmt.Sprintf("job %s (%s): %s", n.Name, n.Job, n.On) }
