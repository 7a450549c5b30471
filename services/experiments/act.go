package experiments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
)

// act does what follows from a stored record: first what is wanted of jobs, then the jobs, at last the news. Of a job that somebody else has submitted nothing
// is wanted.
func (c *conductor) act(ctx context.Context, id string) error {
	r := c.running[id].Value
	for _, f := range r.Submissions() {
		if c.asked[f.Subject] {
			continue
		}
		there, ours, err := c.submittedBefore(ctx, f)
		switch {
		case err != nil:
			return err
		case there && !ours:
			return c.leave(ctx, id, train.JobID(f.Subject.ID))
		}
		c.asked[f.Subject] = there
	}
	for _, s := range r.Settings() {
		if err := c.want(ctx, s); err != nil {
			return err
		}
	}
	if err := c.ask(ctx, r); err != nil {
		return err
	}
	return c.report(ctx, id)
}

// ask publishes what was not asked before. A submission that meets another one on its way is looked at again in a moment.
func (c *conductor) ask(ctx context.Context, r conduct.Record) error {
	for _, f := range r.Submissions() {
		if c.asked[f.Subject] {
			continue
		}
		if _, err := c.bus.PublishAfter(ctx, f, 0); err != nil {
			return err
		}
		c.asked[f.Subject] = true
	}
	for _, f := range r.Cancellations() {
		if c.asked[f.Subject] {
			continue
		}
		if err := c.bus.Publish(ctx, f); err != nil {
			return err
		}
		c.asked[f.Subject] = true
	}
	return nil
}

// submittedBefore says whether a job was submitted under the id of a trial's, and whether it is the trial's: of several submissions the first one stands.
func (c *conductor) submittedBefore(ctx context.Context, f event.Fact) (there, ours bool, err error) {
	wanted, err := f.Encode()
	if err != nil {
		return false, false, fmt.Errorf("encode %s: %w", f.Subject, err)
	}
	err = c.bus.Stored(ctx, event.StreamJobs, []string{f.Subject.String()}, time.Time{}, func(m bus.Message) {
		if there {
			return
		}
		there = true
		if s, err := event.Decode[event.Submitted](m.Data); err == nil {
			data, err := json.Marshal(s)
			ours = err == nil && bytes.Equal(data, wanted)
		}
	})
	return there, ours, err
}

// leave gives up a trial whose job's id belongs to somebody else's job.
func (c *conductor) leave(ctx context.Context, id string, job train.JobID) error {
	c.drop(ctx, job)
	return c.moveOn(ctx, id, func(r *conduct.Record) { r.Taken(job, c.now()) })
}

// report tells the news and notes that it did.
func (c *conductor) report(ctx context.Context, id string) error {
	e := c.running[id]
	before, err := json.Marshal(e.Value)
	if err != nil {
		return fmt.Errorf("encode experiment %s: %w", id, err)
	}
	told, err := copyOf(before)
	if err != nil {
		return err
	}
	if news := told.Tell(); len(news) > 0 {
		if err := c.bus.Publish(ctx, news...); err != nil {
			return err
		}
		if err := c.keep(ctx, id, told, before); err != nil {
			return err
		}
	}
	if !unfinished(told) {
		c.log.Info("experiment is over", "experiment", id, "state", told.State, "message", told.Message)
		c.forget(ctx, told)
	}
	return nil
}

// want stores a setting unless it is there.
func (c *conductor) want(ctx context.Context, s train.Setting) error {
	if c.wanted[s.Job].Same(s) {
		return nil
	}
	_, err := c.settings.Modify(ctx, string(s.Job), func(there *train.Setting) (bool, error) {
		if there.Job == s.Job && there.Same(s) {
			return false, nil
		}
		*there = s
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("set the parameters of %s: %w", s.Job, err)
	}
	c.wanted[s.Job] = s
	return nil
}

// forget removes what is only of use while an experiment runs.
func (c *conductor) forget(ctx context.Context, r conduct.Record) {
	delete(c.running, r.ID)
	for i := range r.Trials {
		c.drop(ctx, r.Trials[i].Job)
	}
	maps.DeleteFunc(c.asked, func(s event.Subject, _ bool) bool {
		id, _, ok := conduct.SplitJobID(s.ID)
		return ok && id == r.ID
	})
}

// drop removes what is wanted of a job.
func (c *conductor) drop(ctx context.Context, job train.JobID) {
	delete(c.wanted, job)
	there, err := c.settings.Get(ctx, string(job))
	if err == nil {
		err = c.settings.Delete(ctx, string(job), there.Revision)
	}
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		c.log.Debug("setting not removed", "job", job, "error", err)
	}
}
