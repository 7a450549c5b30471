// Package roster keeps the newest attempt of every job and finds the one that a capability names. It decides neither what a caller may do nor whether an
// attempt is still the right one; callers do.
package roster

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// ErrUnknown says that no attempt has the capability.
var ErrUnknown = errors.New("unknown capability")

// listSpacing bounds how often callers with an unknown capability make the bucket be read.
const listSpacing = 200 * time.Millisecond

// Source is where attempts are read when the picture may be too old.
type Source interface {
	Get(ctx context.Context, key string) (bus.Entry[train.Attempt], error)
	List(ctx context.Context, patterns ...string) ([]bus.Entry[train.Attempt], error)
}

// Roster is the picture of the bucket of attempts.
type Roster struct {
	source Source

	mu           sync.Mutex
	byJob        map[train.JobID]bus.Entry[train.Attempt]
	byCapability map[string]train.JobID

	// listing is held by whoever reads the whole bucket. lastTry is when that last began, lastList when one that succeeded did.
	listing  chan struct{}
	lastTry  time.Time
	lastList time.Time
}

// New makes an empty roster.
func New(source Source) *Roster {
	return &Roster{
		source: source, byJob: map[train.JobID]bus.Entry[train.Attempt]{}, byCapability: map[string]train.JobID{},
		listing: make(chan struct{}, 1),
	}
}

// Hash is the form in which secrets are kept: SHA-256 in hex.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// SameHash compares two hashes in constant time.
func SameHash(a, b string) bool {
	return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// Put takes an entry of the bucket; one that is older than what is known changes nothing.
func (r *Roster) Put(e bus.Entry[train.Attempt], deleted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	job := train.JobID(e.Key)
	known, found := r.byJob[job]
	if found && known.Revision > e.Revision {
		return
	}
	if found {
		delete(r.byCapability, known.Value.CapabilityHash)
		delete(r.byJob, job)
	}
	if deleted {
		return
	}
	r.byJob[job] = e
	if e.Value.CapabilityHash != "" {
		r.byCapability[e.Value.CapabilityHash] = job
	}
}

// Live lists the attempts that may have processes on a node, ordered by job. Of an attempt that spans several nodes it tells the part on this one.
func (r *Roster) Live(node train.NodeID) []train.Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	var live []train.Attempt
	for _, e := range r.byJob {
		if a := e.Value; a.IsOn(node) && a.Live() {
			part := a.PartOn(node)
			a.Node, a.Devices, a.Memory, a.Parts = node, part.Devices, part.Memory, nil
			live = append(live, a)
		}
	}
	slices.SortFunc(live, func(a, b train.Attempt) int { return strings.Compare(string(a.Job), string(b.Job)) })
	return live
}

// Newest lists the newest attempt of every job, on whatever node, over or not.
func (r *Roster) Newest() []train.Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]train.Attempt, 0, len(r.byJob))
	for _, e := range r.byJob {
		all = append(all, e.Value)
	}
	return all
}

// Holds says whether an attempt is the newest of its job and live.
func (r *Roster) Holds(job train.JobID, number int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byJob[job].Value
	return a.Number == number && a.Live()
}

// Find gives the newest attempt of the job whose capability this is. A job that was started a moment ago may not have arrived here yet, so an
// unknown capability is looked up in the bucket itself before ErrUnknown is returned; any other error means that the bucket could not be read.
func (r *Roster) Find(ctx context.Context, capability string) (train.Attempt, error) {
	hash := Hash(capability)
	if a, ok := r.find(hash); ok {
		return a, nil
	}
	if err := r.list(ctx, time.Now()); err != nil {
		return train.Attempt{}, err
	}
	if a, ok := r.find(hash); ok {
		return a, nil
	}
	return train.Attempt{}, ErrUnknown
}

// find may index by the hash: its timing tells something of a digest of what the caller sent, nothing of a secret.
func (r *Roster) find(hash string) (train.Attempt, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	job, found := r.byCapability[hash]
	a := r.byJob[job].Value
	return a, found && SameHash(a.CapabilityHash, hash)
}

// Refresh reads the newest attempt of a job from the bucket.
func (r *Roster) Refresh(ctx context.Context, job train.JobID) (train.Attempt, error) {
	e, err := r.source.Get(ctx, string(job))
	if err != nil {
		return train.Attempt{}, fmt.Errorf("refresh attempt of %s: %w", job, err)
	}
	r.Put(e, false)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byJob[job].Value, nil
}

// list reads the bucket, one caller at a time and not too often. A caller is served by any reading that began after it came.
func (r *Roster) list(ctx context.Context, arrived time.Time) error {
	select {
	case r.listing <- struct{}{}:
		defer func() { <-r.listing }()
	case <-ctx.Done():
		return fmt.Errorf("list attempts: %w", ctx.Err())
	}
	if r.lastList.After(arrived) {
		return nil
	}
	timer := time.NewTimer(listSpacing - time.Since(r.lastTry))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("list attempts: %w", err)
	}
	began := time.Now()
	r.lastTry = began
	entries, err := r.source.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range entries {
		r.Put(e, false)
	}
	r.lastList = began
	return nil
}
