package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// withBus runs f on a connection of its own.
func (a *app) withBus(cmd *cobra.Command, f func(ctx context.Context, b *bus.Bus) error) error {
	b, err := a.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer b.Close()
	return runtime(f(cmd.Context(), b))
}

// openBucket opens a bucket of the contract. On a bus where no service ever ran there is none.
func openBucket[T any](ctx context.Context, b *bus.Bus, bucket string) (*bus.KV[T], error) {
	kv, err := bus.OpenKV[T](ctx, b, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, failure(ExitUnreachable, "start the services: `switchyard up`", "no service of Switchyard has run on the bus at %s", b.URL())
	}
	return kv, err
}

// listTimeout bounds the reading of a whole bucket.
const listTimeout = 15 * time.Second

func listBucket[T any](ctx context.Context, b *bus.Bus, bucket string, patterns ...string) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	kv, err := openBucket[T](ctx, b, bucket)
	if err != nil {
		return nil, err
	}
	entries, err := kv.List(ctx, patterns...)
	if err != nil {
		return nil, err
	}
	values := make([]T, len(entries))
	for i, e := range entries {
		values[i] = e.Value
	}
	return values, nil
}

// getIfThere reads a key; found is false where there is none.
func getIfThere[T any](ctx context.Context, b *bus.Bus, bucket, key string) (value T, found bool, err error) {
	kv, err := openBucket[T](ctx, b, bucket)
	if err != nil {
		return value, false, err
	}
	e, err := kv.Get(ctx, key)
	if errors.Is(err, bus.ErrNotFound) {
		return value, false, nil
	}
	return e.Value, err == nil, err
}

// lastIfThere reads the newest fact on a subject.
func lastIfThere[T any](ctx context.Context, b *bus.Bus, stream string, subject event.Subject) (body T, found bool, err error) {
	m, err := b.Last(ctx, stream, subject)
	if errors.Is(err, bus.ErrNotFound) {
		return body, false, nil
	}
	if err != nil {
		return body, false, err
	}
	body, err = event.Decode[T](m.Data)
	return body, err == nil, err
}

// lastPlan is what the planner decided last; an empty plan where it has not decided yet, or where something else was put in the place of its plan.
func lastPlan(ctx context.Context, b *bus.Bus) (train.Plan, error) {
	m, err := b.Last(ctx, event.StreamPlans, event.Subject{Entity: "plan", ID: "main", Fact: event.FactDecided, Version: 1})
	if errors.Is(err, bus.ErrNotFound) {
		return train.Plan{}, nil
	}
	if err != nil {
		return train.Plan{}, err
	}
	decided, unreadable := event.Decode[event.PlanDecided](m.Data)
	if unreadable != nil {
		decided = event.PlanDecided{} // the planner publishes its plan again as soon as it sees this
	}
	return decided.Plan, nil
}

// findJob gives the job that a person means by ref: an id, the newest job of that name, or the beginning of an id. An unknown one fails with the
// exit code unknown. A submission that is stored but that admission has not taken up counts: it will become a job.
func findJob(ctx context.Context, b *bus.Bus, ref string, unknown int) (train.Job, error) {
	id, notID := train.ParseJobID(ref)
	if notID == nil {
		job, found, err := getIfThere[train.Job](ctx, b, event.BucketJobs, string(id))
		if found || err != nil {
			return job, err
		}
	}
	jobs, err := listBucket[train.Job](ctx, b, event.BucketJobs)
	if err != nil {
		return train.Job{}, err
	}
	job, found, err := pickJob(jobs, ref, currentUser())
	if found || err != nil {
		return job, err
	}
	if notID == nil {
		body, found, err := lastIfThere[event.Submitted](ctx, b, event.StreamJobs, event.JobSubject(id, event.FactSubmitted))
		if err == nil && found {
			return train.Job{
				ID: id, Spec: body.Spec, State: train.StateSubmitted, Reason: "Submitted",
				Message: "the submission is stored, and admission has not taken it up yet", Hint: "is the admission service running?",
			}, nil
		}
	}
	return train.Job{}, failure(unknown, nearMiss(jobs, ref), "no job %q", ref)
}

// findJobs finds all or none, each once.
func findJobs(ctx context.Context, b *bus.Bus, refs []string, unknown int) ([]train.Job, error) {
	var jobs []train.Job
	for _, ref := range refs {
		job, err := findJob(ctx, b, ref, unknown)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(jobs, func(j train.Job) bool { return j.ID == job.ID }) {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// pickJob finds a job by its whole id, its name or the beginning of its id. A whole name goes before the beginning of another job's id, and one's own
// jobs go before those of others with the same name.
func pickJob(jobs []train.Job, ref, me string) (job train.Job, found bool, err error) {
	var named, begun []train.Job
	for _, j := range jobs {
		switch {
		case string(j.ID) == ref:
			return j, true, nil
		case ref == "":
		case j.Spec.Name == ref:
			named = append(named, j)
		case strings.HasPrefix(string(j.ID), ref):
			begun = append(begun, j)
		}
	}
	if len(named) > 0 {
		return slices.MaxFunc(named, func(x, y train.Job) int {
			if mine, yours := x.Spec.User == me, y.Spec.User == me; mine != yours {
				if mine {
					return 1
				}
				return -1
			}
			return newer(x, y)
		}), true, nil
	}
	switch len(begun) {
	case 0:
		return train.Job{}, false, nil
	case 1:
		return begun[0], true, nil
	}
	slices.SortFunc(begun, func(x, y train.Job) int { return newer(y, x) })
	const shown = 5
	var names []string
	for _, j := range begun[:min(len(begun), shown)] {
		names = append(names, string(j.ID))
	}
	if len(begun) > shown {
		names = append(names, "..")
	}
	return train.Job{}, false, failure(ExitError, "give more of the id", "%q begins the ids of %d jobs: %s", ref, len(begun), strings.Join(names, ", "))
}

// newer orders by the time of submission, then by id.
func newer(x, y train.Job) int {
	if c := x.SubmittedAt.Compare(y.SubmittedAt); c != 0 {
		return c
	}
	return strings.Compare(string(x.ID), string(y.ID))
}

// nearMiss is what to do about an unknown job.
func nearMiss(jobs []train.Job, ref string) string {
	var known []string
	for _, j := range jobs {
		known = append(known, string(j.ID))
		if j.Spec.Name != "" {
			known = append(known, j.Spec.Name)
		}
	}
	slices.Sort(known)
	if near := train.NearMiss(ref, slices.Compact(known)); near != "" {
		return fmt.Sprintf("did you mean %s?", escapeText(near))
	}
	return "`switchyard ps -A` lists the jobs"
}

// currentUser is who asks, as admission names people.
func currentUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid%d", os.Getuid())
}
