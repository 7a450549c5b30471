package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
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
