package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/services/experiments/conduct"
	"github.com/switchyard-dl/switchyard/services/experiments/profile"
)

// learn adds the results of ended trials to the ground truth. It publishes before it stores, and stores before the
// record says so: after a crash in between it publishes again, and learns once.
func (c *conductor) learn(ctx context.Context, r *conduct.Record) (profile.Store, error) {
	if len(r.Experiment.System) == 0 {
		return profile.Store{}, nil
	}
	key := cmp.Or(r.Experiment.Profiles, contract.ProfilesKey)
	e, err := c.profiles.Get(ctx, key)
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		return profile.Store(e.Value), err
	}
	learnt := r.Learn(profile.Store(e.Value))
	if reflect.DeepEqual(contract.GroundTruth(learnt), e.Value) {
		return learnt, nil
	}
	if err := c.bus.Publish(ctx, learntFact(r.ID, e.Revision, learnt)); err != nil {
		return learnt, err
	}
	if _, err := c.profiles.Swap(ctx, key, contract.GroundTruth(learnt), e.Revision); err != nil {
		return learnt, fmt.Errorf("store the ground truth: %w", err)
	}
	return learnt, nil
}

// comparisonKept is how long the ground truth of a comparison outlives the last of its experiments: the next one may
// not have arrived yet.
const comparisonKept = 24 * time.Hour

// keepForgetting deletes the ground truths of comparisons that are over.
func (c *conductor) keepForgetting(ctx context.Context) error {
	for range tick.Every(ctx, time.Hour) {
		if err := c.forgetComparisons(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("what a comparison has learnt is kept for now", "error", err)
		}
	}
	return nil
}

func (c *conductor) forgetComparisons(ctx context.Context) error {
	truths, err := c.profiles.List(ctx)
	isOwn := func(e bus.Entry[contract.GroundTruth]) bool { return e.Key == contract.ProfilesKey }
	if truths = slices.DeleteFunc(truths, isOwn); err != nil || len(truths) == 0 {
		return err
	}
	records, err := c.records.List(ctx)
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, r := range records {
		if !r.Value.Over() || c.now().Sub(r.Value.EndedAt) < comparisonKept {
			needed[r.Value.Experiment.Profiles] = true
		}
	}
	for _, e := range truths {
		if !needed[e.Key] {
			err = errors.Join(err, c.profiles.Delete(ctx, e.Key, e.Revision))
		}
	}
	return err
}

// learntFact returns the fact that reports what is known after a revision of the ground truth.
func learntFact(id string, revision uint64, s profile.Store) event.Fact {
	body := event.Learnt{Best: []event.BestSetting{}}
	for _, t := range s.Truths() {
		best := event.BestSetting{Cluster: t.Kind, BatchSize: t.BatchSize, Setting: t.Setting, Workloads: t.Workloads}
		if t.Unit == conduct.InJoules {
			best.EpochJoules = t.Cost
		} else {
			best.EpochSeconds = t.Cost
		}
		body.Best = append(body.Best, best)
	}
	return event.TuneFact(id, event.FactLearnt, fmt.Sprintf("learnt/%d", revision), body)
}
