package jobapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/attemptindex"
)

// identifier finds out which attempt sends a request.
type identifier struct {
	node     train.NodeID
	attempts *attemptindex.Index
	log      *slog.Logger
}

// identifyTimeout leaves a client, which waits two seconds, time to receive the answer.
const identifyTimeout = 1500 * time.Millisecond

// identify finds the attempt that calls. With a token it must be the newest attempt of the job; without one the
// newest is meant. What this process knows may be a moment old, so no caller is rejected before the bucket itself was
// read.
func (i *identifier) identify(ctx context.Context, capability, token string) (train.Attempt, *refusal) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	unavailable := func(err error) *refusal {
		i.log.Debug("attempt not identified", "error", err)
		return &refusal{http.StatusServiceUnavailable, "Unavailable", "the scheduler's records cannot be read at the moment", "try again"}
	}
	attempt, err := i.attempts.Find(ctx, capability)
	switch {
	case errors.Is(err, attemptindex.ErrUnknown):
		return attempt, &refusal{http.StatusNotFound, "UnknownJob", "no job has this JOB_UUID", "use the JOB_UUID of the environment as it is"}
	case err != nil:
		return attempt, unavailable(err)
	}
	tokenHash := ""
	if token != "" {
		tokenHash = train.Hash(token)
	}
	if i.current(attempt, tokenHash) {
		return attempt, nil
	}
	if attempt, err = i.attempts.Refresh(ctx, attempt.Job); err != nil {
		return attempt, unavailable(err)
	}
	if i.current(attempt, tokenHash) {
		return attempt, nil
	}
	return attempt, &refusal{
		http.StatusConflict, "FencedOff", "this attempt of the job has ended or was replaced by a newer one",
		"stop: its reports are no longer recorded",
	}
}

// current reports whether this agent serves the attempt. All ranks of a gang over several nodes call one agent: if
// they got different answers about when to stop, those that continue would wait for those that left.
func (i *identifier) current(attempt train.Attempt, tokenHash string) bool {
	return attempt.Live() && attempt.Home() == i.node && (tokenHash == "" || attemptindex.SameHash(attempt.TokenHash, tokenHash))
}
