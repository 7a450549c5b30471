package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// guardEvery is the interval between two looks at the streams.
func (b *Bus) guardEvery() time.Duration { return cmp.Or(b.config.GuardEvery, 3*time.Second) }

// markRepaired is the key in the metadata of a stream whose value changes with each repair.
const markRepaired = "switchyard-repaired"

// markEnds is the key in the metadata of a stream with the newest sequence that records speak of, if the stream was
// found to end before it.
const markEnds = "switchyard-ends"

// markPutBack is the key in the metadata of a bucket's stream with the time of the newest loss after which it got back
// what a snapshot has of it.
const markPutBack = "switchyard-put-back"

// markDamaged is the key in the metadata of a stream with the words for what was found to be lost
// on the disk.
const markDamaged = "switchyard-damaged"

// Damaged says in words what a stream has lost on the disk, for all to see until it is repaired. A bucket that follows
// from a stream is folded again.
func (b *Bus) Damaged(ctx context.Context, stream, words string) error {
	if madeBy(stream, contract.Folded) {
		if err := b.FoldAgain(ctx, strings.TrimPrefix(stream, bucketPrefix)); err != nil {
			return err
		}
	}
	return b.Mark(ctx, stream, markDamaged, words)
}

// CheckJobs compares the newest fact that the register speaks of with JOBS. If it is missing, JOBS is marked for all to
// see. CheckJobs reads the end of JOBS first: services that work at the same time may soon store facts under the
// sequences that were lost.
func (b *Bus) CheckJobs(ctx context.Context) error {
	// A program starts with this, before all else: of a long register nothing more is decoded.
	type folded struct {
		LastSequence uint64 `json:"last_sequence"`
	}
	jobs, err := OpenKV(ctx, b, contract.Bucket[folded](contract.Jobs))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	last, err := b.LastSequence(ctx, event.StreamJobs)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // it is noticed by itself
	}
	if err != nil {
		return err
	}
	entries, err := jobs.Partly().List(ctx)
	if err != nil {
		return err
	}
	newest, job := uint64(0), ""
	for _, e := range entries {
		if e.Value.LastSequence > newest {
			newest, job = e.Value.LastSequence, e.Key
		}
	}
	if newest <= last {
		return nil
	}
	// JOBS may have grown after its end was read. Then it has this fact.
	switch m, err := b.At(ctx, event.StreamJobs, newest); {
	case err == nil && m.Parsed.ID == job:
		return nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return err
	}
	return b.Mark(ctx, event.StreamJobs, markEnds, strconv.FormatUint(newest, 10))
}

// ErrDamaged reports that streams or buckets are missing, or have lost what was seen in them.
var ErrDamaged = errors.New("the bus has lost data")

// Guard remembers what one process has seen of each stream and bucket, apart from the bus, and notices what is lost.
type Guard struct {
	bus *Bus
	// save writes what is remembered to the disk.
	save func([]byte) error
	// tell gets each loss once.
	tell    func(Loss)
	log     *slog.Logger
	working conc.WaitGroup

	mu sync.Mutex
	// heeding are the connections of the process. renewed is set when the guard finds that a stream was made again, which
	// readers do not notice by themselves.
	heeding []*Bus
	renewed bool
	// remembered is what was seen, and the losses that nobody has repaired yet.
	remembered remembered
	// missing are the streams that are not there now, partial the buckets that are being made again.
	missing, partial []string
	// suspected are the streams that the newest look found missing or too short. In a cluster a server that was away may
	// answer with what it knew before, so a second look has to find the same.
	suspected map[string]bool
	saved     []byte
	// other is why this program no longer understands what the bus holds, once a newer one has made the streams.
	other error
	// unsaved is set while the disk takes nothing.
	unsaved bool
}

// remembered is the content of a service's file.
type remembered struct {
	Streams map[string]Seen `json:"streams"`
	Losses  map[string]Loss `json:"losses,omitempty"`
}

// Guard begins to watch over the streams and buckets, before Ensure makes what is missing. past is what an earlier
// process saved, or empty. tell gets each loss once. It ends with the connection.
func (b *Bus) Guard(ctx context.Context, past []byte, save func([]byte) error, tell func(Loss)) (*Guard, error) {
	g := &Guard{bus: b, save: save, tell: tell, log: b.log, suspected: map[string]bool{}, remembered: remembered{Streams: map[string]Seen{}, Losses: map[string]Loss{}}}
	if len(past) > 0 {
		if err := json.Unmarshal(past, &g.remembered); err != nil {
			return nil, fmt.Errorf("read what was seen of the bus: %w", err)
		}
	}
	if g.remembered.Losses == nil {
		g.remembered.Losses = map[string]Loss{}
	}
	if err := retry(ctx, func() error { return g.look(ctx) }); err != nil {
		return nil, fmt.Errorf("look at the bus: %w", err)
	}
	b.Heed(g)
	b.mu.Lock()
	defer b.mu.Unlock()
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stopGuard = func() { stop(); g.working.Wait() }
	g.working.Go(func() { g.run(watch) })
	return g, nil
}

// Heed ties the readiness of a connection, and what it handles, to what a guard finds.
func (b *Bus) Heed(g *Guard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.guard = g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heeding = append(g.heeding, b)
}

func (g *Guard) run(ctx context.Context) {
	for range tick.After(ctx, g.bus.guardEvery()) {
		if err := g.look(ctx); err != nil {
			continue // the bus is away
		}
		if g.lacks() {
			if err := g.bus.Ensure(ctx); err == nil {
				_ = g.look(ctx)
			}
		}
		g.rouse()
	}
}

// rouse has all readers of the process begin again if a stream was made again.
func (g *Guard) rouse() {
	g.mu.Lock()
	renewed, heeding := g.renewed, g.heeding
	g.renewed = false
	g.mu.Unlock()
	for _, b := range heeding {
		if renewed {
			b.wake()
		}
	}
}

func (g *Guard) lacks() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.missing) > 0
}

// look compares the streams with what is remembered.
func (g *Guard) look(ctx context.Context) error {
	ctx, cancel := exchange(ctx)
	defer cancel()
	there, partial, other := map[string]*Seen{}, []string(nil), error(nil)
	list := g.bus.js.ListStreams(ctx)
	for info := range list.Info() {
		s := Seen{
			Created: info.Created, First: info.State.FirstSeq, FirstTime: info.State.FirstTime, Last: info.State.LastSeq, Messages: info.State.Msgs, Deleted: info.State.NumDeleted,
			Repaired: info.Config.Metadata[markRepaired], Damaged: info.Config.Metadata[markDamaged],
		}
		s.Ends, _ = strconv.ParseUint(info.Config.Metadata[markEnds], 10, 64)
		if info.State.Lost != nil {
			s.Lost = len(info.State.Lost.Msgs)
		}
		there[info.Config.Name] = &s
		if info.Config.Metadata[markPartial] != "" {
			partial = append(partial, info.Config.Name)
		}
		if info.Config.Name == event.StreamJobs {
			other = g.bus.compare(info.Config.Metadata[markContract], build.Newer)
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if other != nil && g.other == nil {
		g.log.Error("this program works no more", "error", other)
	}
	g.partial, g.other = partial, other
	return g.compare(there, time.Now())
}

// compare notes losses, and remembers what is there.
func (g *Guard) compare(there map[string]*Seen, at time.Time) error {
	kinds, missing := kinds(), []string(nil)
	for name, kind := range kinds {
		now := there[name]
		before, known := g.remembered.Streams[name]
		if now == nil && !known {
			continue // it was never made
		}
		if now == nil {
			missing = append(missing, name)
		}
		if known {
			g.judge(name, kind, before, now, at)
		}
		switch {
		case now == nil:
		case g.suspected[name]:
			before.Last = max(before.Last, now.Ends)
			g.remembered.Streams[name] = before
		default:
			g.remembered.Streams[name] = keep(kind, *now)
		}
	}
	slices.Sort(missing)
	g.missing = missing
	return g.write()
}

// judge compares a stream with what was seen of it before; now is nil if it is missing.
func (g *Guard) judge(name string, kind kindOf, before Seen, now *Seen, at time.Time) {
	if now != nil && !now.Created.Equal(before.Created) {
		g.renewed = true
	}
	if now != nil && kind.mends && now.madeAgainSince(before) {
		g.log.Error("a stream was lost, and is made again: what it held comes back, or does not count", "stream", name)
	}
	if now != nil && (now.repairedSince(before) || kind.mends) {
		delete(g.remembered.Losses, name)
	}
	loss, lost := lossOf(name, kind, before, now, at)
	gone := lost && loss.Gone
	if lost && (!gone || g.suspected[name]) {
		g.note(loss)
	}
	g.suspected[name] = gone
}

// note reports a loss once, and keeps it until it is repaired.
func (g *Guard) note(l Loss) {
	if g.remembered.Losses[l.Stream].Cause == l.Cause {
		return
	}
	g.remembered.Losses[l.Stream] = l
	g.tell(l)
}

// LogLoss logs a loss, and what to do about it.
func LogLoss(log *slog.Logger, l Loss) {
	log.Error("the bus has lost data", "stream", l.Stream, "cause", l.Cause, "do", "run `switchyard repair`: it says what comes back and what does not")
}

// keep returns what is worth remembering: what changes all the time and comes back by itself is not.
func keep(kind kindOf, s Seen) Seen {
	if kind.mends {
		return Seen{Created: s.Created, Repaired: s.Repaired}
	}
	return s
}

// write saves what is remembered if it has changed.
func (g *Guard) write() error {
	data, err := json.Marshal(g.remembered)
	if err != nil || reflect.DeepEqual(data, g.saved) {
		return err
	}
	if err := g.save(append(data, '\n')); err != nil {
		if !g.unsaved {
			g.log.Warn("what was seen of the bus is not saved", "error", err)
		}
		g.unsaved = true
		return nil
	}
	g.saved, g.unsaved = data, false
	return nil
}

// Losses returns what is lost and not repaired.
func (g *Guard) Losses() []Loss {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Values(g.remembered.Losses), func(x, y Loss) int { return x.At.Compare(y.At) })
}

// Err returns the losses as an error that wraps ErrDamaged.
func (g *Guard) Err() error {
	var errs []error
	for _, l := range g.Losses() {
		errs = append(errs, fmt.Errorf("%w: %s", ErrDamaged, l))
	}
	return errors.Join(errs...)
}

// usable returns an error while a service cannot know what it must know to act: a stream or bucket is missing, has lost
// its newest messages, or is being made again.
func (g *Guard) usable() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.other != nil:
		return g.other
	case len(g.missing) > 0 && len(g.remembered.Streams) > 0:
		return fmt.Errorf("%w: %v missing", ErrDamaged, g.missing)
	case len(g.partial) > 0:
		return fmt.Errorf("%v %w", g.partial, ErrPartial)
	}
	return g.regressed()
}

// regressed returns an error while a stream ends before what was seen in it: new messages would be taken for old ones.
func (g *Guard) regressed() error {
	for name, is := range g.suspected {
		if is {
			return fmt.Errorf("%w: %s is missing, or ends too early", ErrDamaged, name)
		}
	}
	for _, l := range g.remembered.Losses {
		if l.Gone {
			return fmt.Errorf("%w: %s", ErrDamaged, l)
		}
	}
	return nil
}

// handles returns an error while messages must not be handled.
func (g *Guard) handles() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.other != nil {
		return g.other
	}
	return g.regressed()
}

// PutBackAfter says that a bucket got back what a snapshot has of it after a loss. What was written since the snapshot
// is lost: the loss counts until it is repaired.
func (b *Bus) PutBackAfter(ctx context.Context, l Loss) error {
	return b.Mark(ctx, l.Stream, markPutBack, l.At.UTC().Format(time.RFC3339Nano))
}

// WasPutBack says whether a bucket got back what a snapshot has of it after a loss.
func (b *Bus) WasPutBack(ctx context.Context, l Loss) (bool, error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, l.Stream)
	if err != nil {
		return false, fmt.Errorf("look at stream %s: %w", l.Stream, b.cause(err))
	}
	at, err := time.Parse(time.RFC3339Nano, s.CachedInfo().Config.Metadata[markPutBack])
	return err == nil && !at.Before(l.At), nil
}

// Repaired says that what a stream has lost is known: what is there now counts from now on.
func (b *Bus) Repaired(ctx context.Context, stream string, at time.Time) error {
	if err := errors.Join(b.Mark(ctx, stream, markEnds, ""), b.Mark(ctx, stream, markDamaged, "")); err != nil {
		return err
	}
	return b.Mark(ctx, stream, markRepaired, at.UTC().Format(time.RFC3339Nano))
}

// Remembered reads what a guard saved: the losses, and the newest sequence that was seen of each stream.
func Remembered(saved []byte) (losses []Loss, last map[string]uint64, err error) {
	var r remembered
	if err := json.Unmarshal(saved, &r); err != nil {
		return nil, nil, fmt.Errorf("read what was seen of the bus: %w", err)
	}
	last = map[string]uint64{}
	for name, s := range r.Streams {
		last[name] = s.Last
	}
	return slices.Collect(maps.Values(r.Losses)), last, nil
}

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
