package kube

import (
	"context"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Retune refuses all: pods keep what they were made with.
func (b *Backend) Retune(_ context.Context, _ train.Attempt, _ launch.Sight, wanted train.Setting) (train.Applied, error) {
	applied := train.Applied{Refused: map[string]string{}}
	for name := range wanted.Values {
		applied.Refused[name] = "pods keep what they were made with"
	}
	return applied, nil
}
