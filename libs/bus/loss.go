package bus

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
)

// Seen is what was last seen of a stream, or of the stream of a bucket.
type Seen struct {
	Created   time.Time `json:"created"`
	First     uint64    `json:"first,omitempty"`
	FirstTime time.Time `json:"first_time,omitzero"`
	Last      uint64    `json:"last,omitempty"`
	Messages  uint64    `json:"messages,omitempty"`
	// Deleted counts the messages that are missing between First and Last, Lost those that the server could not read.
	Deleted int `json:"deleted,omitempty"`
	Lost    int `json:"lost,omitempty"`
	// Ends is the newest sequence that records speak of, if the stream was found to end before it.
	Ends uint64 `json:"ends,omitempty"`
	// Damaged says in words what was found to be lost before the server started.
	Damaged string `json:"damaged,omitempty"`
	// Repaired is the mark of the newest repair: what was lost before is known.
	Repaired string `json:"repaired,omitempty"`
}

// repairedSince reports whether a stream was repaired after it was seen before.
func (s Seen) repairedSince(before Seen) bool {
	return s.Repaired != "" && s.Repaired != before.Repaired
}

// madeAgainSince reports whether a stream that was seen before was deleted, and nobody has said that this is known.
func (s Seen) madeAgainSince(before Seen) bool {
	return !s.Created.Equal(before.Created) && !s.repairedSince(before)
}

// Loss says that something of a stream is lost.
type Loss struct {
	Stream string    `json:"stream"`
	Cause  string    `json:"cause"`
	At     time.Time `json:"at"`
	// Gone says that the stream is missing, or has fewer sequences than it had: nobody may act on it.
	Gone bool `json:"gone,omitempty"`
}

func (l Loss) String() string { return l.Stream + " " + l.Cause }

// kindOf says how a stream is used.
type kindOf struct {
	// bucket is set for the stream of a bucket: any message in it may be deleted.
	bucket bool
	// mends is set if what is lost comes back without anyone's help, or does not count.
	mends  bool
	maxAge time.Duration
}

// kinds returns the streams that are watched over.
func kinds() map[string]kindOf {
	all := map[string]kindOf{}
	for _, s := range event.Streams() {
		all[s.Name] = kindOf{mends: s.DropOld, maxAge: s.MaxAge}
	}
	for _, k := range contract.Buckets() {
		all[bucketPrefix+k.Name] = kindOf{bucket: true, mends: k.Made != contract.Restored}
	}
	return all
}

// lossOf compares what is there of a stream with what was seen before; nil if it is missing. It returns no loss if
// nothing is lost, or if the stream was repaired since.
func lossOf(name string, kind kindOf, before Seen, now *Seen, at time.Time) (Loss, bool) {
	found := func(gone bool, cause string, args ...any) (Loss, bool) {
		return Loss{Stream: name, Cause: fmt.Sprintf(cause, args...), At: at, Gone: gone}, true
	}
	switch {
	case now == nil:
		return found(true, "is missing: it held %d messages, up to %d", before.Messages, before.Last)
	case now.repairedSince(before):
		return Loss{}, false
	case kind.mends:
		return Loss{}, false
	case now.madeAgainSince(before):
		return found(false, "was made again at %s: what it held until then, %d messages, is lost", now.Created.Format(time.RFC3339), before.Messages)
	case now.Ends > 0:
		return found(true, "had ended before %d, which records speak of: its newest messages are lost", now.Ends)
	case now.Last < before.Last:
		return found(true, "ends at %d, but had %d: its newest messages are lost", now.Last, before.Last)
	case now.Damaged != "" && now.Damaged != before.Damaged:
		return found(false, "%s", now.Damaged)
	case now.Lost > before.Lost:
		return found(false, "has %d messages that the server cannot read", now.Lost)
	case kind.bucket:
		return Loss{}, false
	case now.Deleted > before.Deleted:
		return found(false, "has a gap: %d messages between its first and its last are lost", now.Deleted-before.Deleted)
	case now.First > before.First && before.First > 0 && before.FirstTime.Add(kind.maxAge).After(at.Add(time.Minute)):
		return found(false, "begins at %d, but began at %d: its oldest messages are lost", now.First, before.First)
	}
	return Loss{}, false
}

// Watched returns the names of the streams that services watch over, those of buckets too.
func Watched() []string { return slices.Sorted(maps.Keys(kinds())) }
