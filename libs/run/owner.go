package run

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// ownerName is the file in the data folder with the id of its owner.
const ownerName = "owner"

// OwnerOf returns the owner of the data folder, with an id that the folder gets at its first start.
func OwnerOf(c Common) (train.Owner, error) {
	host, err := os.Hostname()
	if err != nil {
		return train.Owner{}, fmt.Errorf("find the name of this machine: %w", err)
	}
	id, err := keepID(filepath.Join(c.DataDir, ownerName), rand.Text())
	if err != nil {
		return train.Owner{}, fmt.Errorf("read the id of the data folder: %w", err)
	}
	return train.Owner{ID: id, Place: host + ":" + c.DataDir}, nil
}

// ErrTaken says that the process of another data folder took over the work, after this one was silent for OwnerLost.
// The service begins again, and stands by.
var ErrTaken = errors.New("a process with the same node name and another data folder took over")

// OwnerLost is how long an owner must be silent before the process of another data folder takes over its work. It is
// the time after which the planner takes the jobs of a silent node for lost.
const OwnerLost = 2 * time.Minute

// lookInterval is how often a process that stands by looks at the record of the owner.
const lookInterval = time.Second

// Ownership is the record of the bus that names the data folder whose process works for a node.
type Ownership[T any] struct {
	Records *bus.KV[T]
	Key     string
	// Mine is the owner of this process's data folder.
	Mine train.Owner
	// Of returns the owner in a record and when he last wrote it. Records of earlier versions name none.
	Of func(T) (train.Owner, time.Time)
	// Refresh is how often an owner writes the record.
	Refresh time.Duration
}

// Foreign reports whether a record names another owner.
func (o Ownership[T]) Foreign(record T) bool {
	owner, _ := o.Of(record)
	return owner.ID != "" && owner.ID != o.Mine.ID
}

// Await waits while the record is that of another owner who still writes it, and returns the record; its revision is 0
// if there is none. It calls waiting once for each such owner. While the bus is away nobody can write, so that time
// does not count as silence.
func (o Ownership[T]) Await(ctx context.Context, waiting func(train.Owner)) (bus.Entry[T], error) {
	var other rival
	var told train.Owner
	for now := range tick.Every(ctx, lookInterval) {
		e, err := o.Records.Get(ctx, o.Key)
		foreign := err == nil && o.Foreign(e.Value)
		owner, seenAt := o.Of(e.Value)
		switch missing := errors.Is(err, bus.ErrNotFound); {
		case err != nil && !missing && !errors.Is(err, bus.ErrPoison):
			other.busAway(now)
		case !foreign && !(missing && other.seen()), other.gone(e.Revision, seenAt, now, o.Refresh):
			return e, nil
		case foreign && owner != told:
			waiting(owner)
			told = owner
		}
	}
	return bus.Entry[T]{}, ctx.Err()
}

// rival is another owner, as seen by a process that stands by.
type rival struct {
	// revision is that of his record, 0 once the bus has lost it: he will write it again.
	revision uint64
	// since is when the revision was first seen.
	since time.Time
}

func (r *rival) seen() bool { return !r.since.IsZero() }

// busAway begins the wait again: while the bus is away, nobody can write.
func (r *rival) busAway(now time.Time) {
	if r.seen() {
		r.since = now
	}
}

// gone reports whether the other owner has been silent for long enough. If his record is old already, it is enough to
// see that he does not write: the clocks of the two machines may differ.
func (r *rival) gone(revision uint64, seenAt, now time.Time, refresh time.Duration) bool {
	if !r.seen() || revision != r.revision {
		*r = rival{revision, now}
	}
	bound := OwnerLost
	if now.Sub(seenAt).Abs() > OwnerLost {
		bound = 3 * refresh
	}
	return now.Sub(r.since) >= bound
}

// StandBy says that a process waits for another owner: in the log, and in /readyz. The function that it returns ends
// the latter.
func (p Process) StandBy(what string, owner train.Owner) {
	err := fmt.Errorf("%s with the same node name works in %s: give one of them another --node, or stop one; this one takes over once the other has been silent for %s",
		what, owner.Place, OwnerLost)
	p.Log.Error("standing by", "error", err, "data_dir", p.Common.DataDir)
	p.Check("owner", func() error { return err })
}

// Owns says that a process waits for no other owner.
func (p Process) Owns() { p.Check("owner", func() error { return nil }) }
