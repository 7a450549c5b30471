package kube

import (
	"context"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Retune has nothing to set: pods keep what they were made with, and the next attempt's are made with what is wanted.
func (b *Backend) Retune(_ context.Context, a train.Attempt, _ launch.Sight, wanted train.Setting) (train.Applied, error) {
	var applied train.Applied
	for name, value := range wanted.Values {
		applied.TakeByRestart(name, value, a.Setting.Values[name])
	}
	return applied, nil
}
