package experiments

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
)

// act carries out what follows from a stored record: first the desired settings of jobs, then submissions and
// cancellations, last the news. A job submitted by another client gets no setting.
func (c *conductor) act(ctx context.Context, id string) error {
	r := conduct.Record(c.running[id].Value)
	for _, f := range r.Submissions() {
		if c.published[f.Subject] {
			continue
		}
		there, ours, err := c.submittedBefore(ctx, f)
		switch {
		case err != nil:
			return err
		case there && !ours:
			return c.abandon(ctx, id, train.JobID(f.Subject.ID))
		}
		c.published[f.Subject] = there
	}
	for _, s := range r.Settings() {
		if err := c.storeSetting(ctx, s); err != nil {
			return err
		}
	}
	if err := c.submit(ctx, r); err != nil {
		return err
	}
	return c.publish(ctx, id)
}

// submit publishes facts that were not published before. A submission that meets another one on its way is checked
// again shortly after.
func (c *conductor) submit(ctx context.Context, r conduct.Record) error {
	for _, f := range r.Submissions() {
		if c.published[f.Subject] {
			continue
		}
		if _, err := c.bus.PublishAfter(ctx, f, 0); err != nil {
			return err
		}
		c.published[f.Subject] = true
	}
	for _, f := range r.Cancellations() {
		if c.published[f.Subject] {
			continue
		}
		if err := c.bus.Publish(ctx, f); err != nil {
			return err
		}
		c.published[f.Subject] = true
	}
	return nil
}

// submittedBefore reports whether a job was submitted under the id of a trial's job, and whether it is the trial's: the
// first of several submissions stands.
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

// abandon gives up a trial whose job id belongs to another client's job.
func (c *conductor) abandon(ctx context.Context, id string, job train.JobID) error {
	c.drop(ctx, job)
	return c.moveOn(ctx, id, func(r *conduct.Record) { r.Taken(job, c.now()) })
}

// publish publishes the news and records that it did.
func (c *conductor) publish(ctx context.Context, id string) error {
	e := c.running[id]
	before, err := json.Marshal(e.Value)
	if err != nil {
		return fmt.Errorf("encode experiment %s: %w", id, err)
	}
	record, err := copyOf(before)
	if err != nil {
		return err
	}
	if news := record.Unpublished(); len(news) > 0 {
		if err := c.bus.Publish(ctx, news...); err != nil {
			return err
		}
		if err := c.keep(ctx, id, record, before); err != nil {
			return err
		}
	}
	if !unfinished(record) {
		c.log.Info("experiment is over", "experiment", id, "state", record.State, "message", record.Message)
		c.forget(ctx, record)
	}
	return nil
}

// storeSetting stores a setting unless it is already stored.
func (c *conductor) storeSetting(ctx context.Context, s train.Setting) error {
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

// forget removes state that is only needed while an experiment runs.
func (c *conductor) forget(ctx context.Context, r conduct.Record) {
	delete(c.running, r.ID)
	for i := range r.Trials {
		c.drop(ctx, r.Trials[i].Job)
	}
	maps.DeleteFunc(c.published, func(s event.Subject, _ bool) bool {
		id, _, ok := contract.SplitTrialJob(s.ID)
		return ok && id == r.ID
	})
}

// drop removes the setting of a job.
func (c *conductor) drop(ctx context.Context, job train.JobID) {
	delete(c.wanted, job)
	if err := c.settings.Remove(ctx, string(job)); err != nil {
		c.log.Debug("setting not removed", "job", job, "error", err)
	}
}
