// Package attemptindex keeps the newest attempt of every job and finds the attempt that a capability belongs to. It
// does not decide what a caller may do or whether an attempt is still the right one; callers do.
package attemptindex

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// ErrUnknown says that no attempt has the capability.
var ErrUnknown = errors.New("unknown capability")

// listSpacing bounds how often callers with an unknown capability cause a listing of the bucket.
const listSpacing = 200 * time.Millisecond

// Source is where attempts are read when the index may be too old.
type Source interface {
	Get(ctx context.Context, key string) (bus.Entry[train.Attempt], error)
	List(ctx context.Context, patterns ...string) ([]bus.Entry[train.Attempt], error)
}

// Index is a copy of the bucket of attempts.
type Index struct {
	source Source

	mu           sync.Mutex
	byJob        map[train.JobID]bus.Entry[train.Attempt]
	live         map[train.JobID]train.Attempt // those of byJob that hold devices
	byCapability map[string]train.JobID

	// listing is held by the caller that lists the whole bucket. lastTry is when the last listing began, lastList
	// when the last successful one did.
	listing  chan struct{}
	lastTry  time.Time
	lastList time.Time
}

// New makes an empty index.
func New(source Source) *Index {
	return &Index{
		source: source, byJob: map[train.JobID]bus.Entry[train.Attempt]{}, live: map[train.JobID]train.Attempt{}, byCapability: map[string]train.JobID{},
		listing: make(chan struct{}, 1),
	}
}

// SameHash compares two hashes in constant time.
func SameHash(a, b string) bool {
	return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// Put stores an entry of the bucket unless it is older than the known one.
func (x *Index) Put(e bus.Entry[train.Attempt], deleted bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	job := train.JobID(e.Key)
	known, found := x.byJob[job]
	if found && known.Revision > e.Revision {
		return
	}
	if found {
		delete(x.byCapability, known.Value.CapabilityHash)
		delete(x.byJob, job)
		delete(x.live, job)
	}
	if deleted {
		return
	}
	x.byJob[job] = e
	if e.Value.Live() {
		x.live[job] = e.Value
	}
	if e.Value.CapabilityHash != "" {
		x.byCapability[e.Value.CapabilityHash] = job
	}
}

// Live lists the attempts that may have processes on a node, ordered by job. An attempt that spans several nodes is
// reduced to its part on this one.
func (x *Index) Live(node train.NodeID) []train.Attempt {
	x.mu.Lock()
	defer x.mu.Unlock()
	var live []train.Attempt
	for _, a := range x.live {
		if a.IsOn(node) {
			part := a.PartOn(node)
			a.Node, a.Devices, a.Memory, a.Parts = node, part.Devices, part.Memory, nil
			live = append(live, a)
		}
	}
	slices.SortFunc(live, func(a, b train.Attempt) int { return strings.Compare(string(a.Job), string(b.Job)) })
	return live
}

// Elsewhere lists the live attempts that have no place on a node, ordered by job. Processes there that carry their
// mark, such as the executors of a Spark program, are theirs all the same. They hold no device there, and no process
// of theirs is known by its number.
func (x *Index) Elsewhere(node train.NodeID) []train.Attempt {
	x.mu.Lock()
	defer x.mu.Unlock()
	others := make([]train.Attempt, 0, len(x.live))
	for _, a := range x.live {
		if !a.IsOn(node) && a.Phase == train.PhaseRunning {
			a.Node, a.Devices, a.Memory, a.Parts, a.PID, a.PIDStart, a.BootID = node, nil, 0, nil, 0, 0, ""
			others = append(others, a)
		}
	}
	slices.SortFunc(others, func(a, b train.Attempt) int { return strings.Compare(string(a.Job), string(b.Job)) })
	return others
}

// Newest lists the newest attempt of every job, on all nodes, ended or not.
func (x *Index) Newest() []train.Attempt {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]train.Attempt, 0, len(x.byJob))
	for _, e := range x.byJob {
		all = append(all, e.Value)
	}
	return all
}

// Holds reports whether an attempt is the newest of its job and live.
func (x *Index) Holds(job train.JobID, number int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byJob[job].Value
	return a.Number == number && a.Live()
}

// Find returns the newest attempt of the job with this capability. A job that was started a moment ago may not have
// arrived yet, so an unknown capability is looked up in the bucket itself before ErrUnknown is returned. Any other
// error means that the bucket could not be read.
func (x *Index) Find(ctx context.Context, capability string) (train.Attempt, error) {
	hash := train.Hash(capability)
	if a, ok := x.find(hash); ok {
		return a, nil
	}
	if err := x.list(ctx, time.Now()); err != nil {
		return train.Attempt{}, err
	}
	if a, ok := x.find(hash); ok {
		return a, nil
	}
	return train.Attempt{}, ErrUnknown
}

// find may look up by the hash: its timing reveals something about a digest of the caller's input, and nothing about
// a secret.
func (x *Index) find(hash string) (train.Attempt, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	job, found := x.byCapability[hash]
	a := x.byJob[job].Value
	return a, found && SameHash(a.CapabilityHash, hash)
}

// Refresh reads the newest attempt of a job from the bucket.
func (x *Index) Refresh(ctx context.Context, job train.JobID) (train.Attempt, error) {
	e, err := x.source.Get(ctx, string(job))
	if err != nil {
		return train.Attempt{}, fmt.Errorf("refresh attempt of %s: %w", job, err)
	}
	x.Put(e, false)
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byJob[job].Value, nil
}

// list reads the bucket, one caller at a time and not too often. A caller is served by any listing that began after
// it arrived.
func (x *Index) list(ctx context.Context, arrived time.Time) error {
	select {
	case x.listing <- struct{}{}:
		defer func() { <-x.listing }()
	case <-ctx.Done():
		return fmt.Errorf("list attempts: %w", ctx.Err())
	}
	if x.lastList.After(arrived) {
		return nil
	}
	if !tick.Pause(ctx, listSpacing-time.Since(x.lastTry)) {
		return fmt.Errorf("list attempts: %w", ctx.Err())
	}
	began := time.Now()
	x.lastTry = began
	entries, err := x.source.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range entries {
		x.Put(e, false)
	}
	x.lastList = began
	return nil
}
