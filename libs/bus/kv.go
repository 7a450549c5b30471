package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// bucketPrefix and the name of a bucket are the name of its stream.
const bucketPrefix = "KV_"

// headerRoom is left for headers beside a value.
const headerRoom = 1 << 10

// KV is a typed view of a bucket.
type KV[T any] struct {
	bus    *Bus
	bucket string
	kv     jetstream.KeyValue
	reader contract.Reader[T]
	// partly lets List read a bucket that is not whole.
	partly bool
	// own remembers what this process has written; nil except in a view by Own.
	own *written[T]
}

// Entry is a value with the revision that a change must name.
type Entry[T any] struct {
	Key      string
	Value    T
	Revision uint64
}

// Values returns the values of entries.
func Values[T any](entries []Entry[T]) []T {
	values := make([]T, len(entries))
	for i, e := range entries {
		values[i] = e.Value
	}
	return values
}

// ByKey returns the values of entries by key.
func ByKey[T any](entries []Entry[T]) map[string]T {
	values := make(map[string]T, len(entries))
	for _, e := range entries {
		values[e.Key] = e.Value
	}
	return values
}

// OpenKV opens a bucket of the contract (made by Ensure).
func OpenKV[T any](ctx context.Context, b *Bus, bucket contract.Bucket[T]) (*KV[T], error) {
	var kv jetstream.KeyValue
	var missing error
	err := retry(ctx, func() (err error) {
		try, cancel := exchange(ctx)
		defer cancel()
		kv, err = b.js.KeyValue(try, string(bucket))
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			missing = fmt.Errorf("%w: no service has made it yet", err)
			return nil
		}
		return err
	})
	if err = errors.Join(err, missing); err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", bucket, err)
	}
	return &KV[T]{bus: b, bucket: string(bucket), kv: kv, reader: bucket.Reader()}, nil
}

// Partly returns a view for the service that makes the bucket again: others get no list of it until it is whole.
func (k *KV[T]) Partly() *KV[T] {
	view := *k
	view.partly = true
	return &view
}

// Own returns a view for keys that no other process writes. Modify and Put begin with the value that this process has
// written last, and need not read it. If another process writes after all, they notice the conflict and read.
func (k *KV[T]) Own() *KV[T] {
	view := *k
	view.own = &written[T]{entries: map[string]Entry[T]{}}
	return &view
}

// Open is OpenKV for one bucket of several: their errors can be joined.
func Open[T any](ctx context.Context, b *Bus, bucket contract.Bucket[T], into **KV[T]) (err error) {
	*into, err = OpenKV(ctx, b, bucket)
	return err
}

// Get reads the newest value of a key. It returns ErrNotFound for a missing key, and ErrPoison (with the revision) if
// the value is no T or is not that of the key.
func (k *KV[T]) Get(ctx context.Context, key string) (Entry[T], error) {
	if !validKey(key) {
		return Entry[T]{}, fmt.Errorf("read %s/%s: %w", k.bucket, key, ErrNotFound)
	}
	raw, err := k.bus.newest(ctx, bucketPrefix+k.bucket, "$KV."+k.bucket+"."+key)
	if errors.Is(err, nats.ErrMsgNotFound) || err == nil && len(raw.Data) == 0 { // a deleted key has an empty value
		err = ErrNotFound
	}
	if err != nil {
		return Entry[T]{}, fmt.Errorf("read %s/%s: %w", k.bucket, key, k.bus.cause(err))
	}
	e := Entry[T]{Key: key, Revision: raw.Sequence}
	if err := k.reader.Decode(key, raw.Data, &e.Value); err != nil {
		return Entry[T]{Key: key, Revision: e.Revision}, fmt.Errorf("%w: decode %s/%s: %w", ErrPoison, k.bucket, key, err)
	}
	return e, nil
}

// Swap writes a value if revision is still the newest one (0: the key does not exist), else returns ErrConflict. It
// returns ErrPoison for what can never be written: too large a value, or an invalid key.
func (k *KV[T]) Swap(ctx context.Context, key string, value T, revision uint64) (uint64, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return 0, fmt.Errorf("encode %s/%s: %w", k.bucket, key, err)
	}
	began := time.Now()
	revision, err = k.swap(ctx, key, data, revision)
	k.bus.meter.wrote(began, err)
	if errors.Is(err, jetstream.ErrInvalidKey) || errors.Is(err, nats.ErrMaxPayload) {
		return 0, fmt.Errorf("%w: write %s/%s: %w", ErrPoison, k.bucket, key, err)
	}
	if isForeign(err) {
		return 0, fmt.Errorf("write %s/%s: %w: %w", k.bucket, key, ErrForeign, err)
	}
	if errors.Is(err, jetstream.ErrKeyExists) || isWrongSequence(err) {
		return 0, fmt.Errorf("write %s/%s: %w", k.bucket, key, ErrConflict)
	}
	if err != nil {
		return 0, fmt.Errorf("write %s/%s: %w", k.bucket, key, k.bus.cause(err))
	}
	return revision, nil
}

// swap is Swap for the encoded value.
func (k *KV[T]) swap(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	if !validKey(key) {
		return 0, jetstream.ErrInvalidKey
	}
	if int64(len(data)) > k.bus.nc.MaxPayload()-headerRoom {
		return 0, nats.ErrMaxPayload
	}
	msg := nats.NewMsg("$KV." + k.bucket + "." + key)
	msg.Data = data
	expect(msg, revision)
	written, err := k.bus.committer(bucketPrefix+k.bucket).write(ctx, msg)
	if revision == 0 && isWrongSequence(err) { // it may have been deleted
		ctx, cancel := exchange(ctx)
		defer cancel()
		return k.kv.Create(ctx, key, data)
	}
	return written, err
}

// validKey says whether the server accepts a key.
func validKey(key string) bool {
	letter := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-/_=.", r)
	}
	return key != "" && key[0] != '.' && key[len(key)-1] != '.' && !strings.ContainsFunc(key, func(r rune) bool { return !letter(r) })
}

// Modify reads a key, lets change work on the value (zero for a missing key) and writes it back, repeating until no
// other write came in between or ctx ends. If change returns false it writes nothing. It returns the value as it then
// stands. Use it only for records that their one writer can rebuild: a value that does not decode counts as missing and
// is replaced.
func (k *KV[T]) Modify(ctx context.Context, key string, change func(*T) (bool, error)) (Entry[T], error) {
	if e, known := k.own.take(key); known {
		// What is not changed is read after all: the bucket may have lost it.
		if write, err := change(&e.Value); err == nil && write {
			if e.Revision, err = k.Swap(ctx, key, e.Value, e.Revision); !errors.Is(err, ErrConflict) {
				k.own.keep(e, err)
				return e, err
			}
		}
	}
	for {
		e, err := k.Get(ctx, key)
		if errors.Is(err, ErrPoison) {
			k.bus.log.Error("undecodable record replaced", "error", err)
		} else if err != nil && !errors.Is(err, ErrNotFound) {
			return e, err
		}
		e.Key = key
		write, err := change(&e.Value)
		if err != nil || !write {
			return e, err
		}
		e.Revision, err = k.Swap(ctx, key, e.Value, e.Revision)
		if !errors.Is(err, ErrConflict) {
			k.own.keep(e, err)
			return e, err
		}
		if ctx.Err() != nil {
			return e, err
		}
	}
}

// written remembers the value that this process has written last to each key. A nil one remembers nothing.
type written[T any] struct {
	mu      sync.Mutex
	entries map[string]Entry[T]
}

// mostWritten bounds what is remembered: a key that is forgotten costs a read.
const mostWritten = 1000

// take removes an entry, so that a change under way that fails leaves nothing behind.
func (w *written[T]) take(key string) (e Entry[T], known bool) {
	if w == nil {
		return e, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e, known = w.entries[key]
	delete(w.entries, key)
	return e, known
}

// keep remembers an entry that was written without an error.
func (w *written[T]) keep(e Entry[T], err error) {
	if w == nil || err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.entries) >= mostWritten {
		clear(w.entries)
	}
	w.entries[e.Key] = e
}

// markerTime is how long watchers can see that a key was deleted or has expired. A watcher that is disconnected for
// longer and was not restarted keeps the value.
const markerTime = 24 * time.Hour

// Put stores a value whatever was there, and writes nothing if the same is there.
func (k *KV[T]) Put(ctx context.Context, key string, value T) error {
	_, err := k.Modify(ctx, key, func(known *T) (bool, error) {
		same := reflect.DeepEqual(*known, value)
		*known = value
		return !same, nil
	})
	return err
}

// Delete removes a key if revision is still the newest one.
func (k *KV[T]) Delete(ctx context.Context, key string, revision uint64) error {
	ctx, cancel := exchange(ctx)
	defer cancel()
	err := k.kv.Purge(ctx, key, jetstream.LastRevision(revision), jetstream.PurgeTTL(markerTime))
	if isWrongSequence(err) {
		return fmt.Errorf("delete %s/%s: %w", k.bucket, key, ErrConflict)
	}
	if err != nil {
		return fmt.Errorf("delete %s/%s: %w", k.bucket, key, k.bus.cause(err))
	}
	return nil
}

// Remove removes a key, whatever its value is. A key that is not there is no error.
func (k *KV[T]) Remove(ctx context.Context, key string) error {
	e, err := k.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return k.Delete(ctx, key, e.Revision)
}

// List reads every entry of the bucket; patterns such as "job.*" narrow it.
func (k *KV[T]) List(ctx context.Context, patterns ...string) (entries []Entry[T], err error) {
	err = k.Each(ctx, func(e Entry[T]) bool {
		entries = append(entries, e)
		return true
	}, patterns...)
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// Each is List for a bucket that is too large to be held: it calls f with one entry after the other, those that changed
// first before the others, until f returns false.
func (k *KV[T]) Each(ctx context.Context, f func(Entry[T]) bool, patterns ...string) error {
	done, stop := context.WithCancel(ctx)
	defer stop()
	if !k.partly {
		if err := k.bus.Whole(ctx, k.bucket); err != nil {
			return fmt.Errorf("list %s: %w", k.bucket, err)
		}
	}
	err := k.scan(done, patterns, decoded(k, func(e Entry[T], deleted bool) {
		if !deleted && done.Err() == nil && !f(e) {
			stop()
		}
	}), new(atomic.Uint64), stop)
	if done.Err() != nil && ctx.Err() == nil {
		return nil // the list is complete
	}
	return fmt.Errorf("list %s: %w", k.bucket, errors.Join(k.bus.cause(err), ctx.Err()))
}

// checkInterval bounds how long a watcher that missed something goes on with old values.
const checkInterval = 30 * time.Second

// Watch calls f with every entry and then with every change until ctx ends; deleted is set for a deleted key. Patterns
// narrow it as those of List do. A watch delivers state, not events: revisions may be skipped and entries repeated (all
// is listed again after a reconnect, and if the bucket turns out to have changes that never came). What a bucket has
// lost for good counts as deleted. If synced is not nil, it is called each time the list is complete.
func (k *KV[T]) Watch(ctx context.Context, f func(e Entry[T], deleted bool), synced func(), patterns ...string) error {
	return k.watch(ctx, decoded(k, f), synced, patterns...)
}

// WatchShared is Watch for records that several services of a process keep: all get the same value, which must not be
// changed. A deleted key has an empty one.
func (k *KV[T]) WatchShared(ctx context.Context, f func(e Entry[*T], deleted bool), synced func(), patterns ...string) error {
	return k.watch(ctx, k.emit(func(key string, revision uint64, data []byte) error {
		if len(data) == 0 {
			f(Entry[*T]{key, new(T), revision}, true)
			return nil
		}
		value, err := Decode[T](k.bus, data)
		if err == nil {
			err = k.reader.Check(key, value)
		}
		if err == nil {
			f(Entry[*T]{key, value, revision}, false)
		}
		return err
	}), synced, patterns...)
}

// message takes the newest value of a key; none if it was deleted or has expired.
type message func(key string, revision uint64, data []byte)

// decoded calls f with a value of its own.
func decoded[T any](k *KV[T], f func(Entry[T], bool)) message {
	return k.emit(func(key string, revision uint64, data []byte) error {
		e := Entry[T]{Key: key, Revision: revision}
		if len(data) == 0 {
			f(e, true)
			return nil
		}
		err := k.reader.Decode(key, data, &e.Value)
		if err == nil {
			f(e, false)
		}
		return err
	})
}

// emit skips what f cannot read.
func (k *KV[T]) emit(f func(key string, revision uint64, data []byte) error) message {
	consumer := "bucket " + k.bucket
	k.bus.meter.setAside(consumer, 0)
	return func(key string, revision uint64, data []byte) {
		if err := f(key, revision, data); err != nil {
			k.bus.meter.setAside(consumer, 1)
			k.bus.log.Error("watch skips a value", "bucket", k.bucket, "key", key, "error", err)
		}
	}
}

func (k *KV[T]) watch(ctx context.Context, f message, synced func(), patterns ...string) error {
	if synced == nil {
		synced = func() {}
	}
	// Only a bucket whose writer does not make its records again can lack some of them for good.
	passed := map[string]uint64{}
	pass := f
	if madeBy(bucketPrefix+k.bucket, contract.Restored) {
		pass = func(key string, revision uint64, data []byte) {
			if passed[key] = revision; len(data) == 0 {
				delete(passed, key)
			}
			f(key, revision, data)
		}
	}
	return k.bus.persist(ctx, "bucket "+k.bucket, func(ctx context.Context) error {
		return k.watchOnce(ctx, patterns, pass, passed, synced)
	})
}

// watchOnce lists the bucket and watches it until it has to be listed again. passed has the revisions of the keys that
// f has got. Those that are older than the bucket were lost with the one before it, and are deleted.
func (k *KV[T]) watchOnce(ctx context.Context, patterns []string, f message, passed map[string]uint64, synced func()) error {
	round, end := context.WithCancel(ctx)
	defer end()
	first, newest, err := k.bus.whole(round, k.bucket)
	if err != nil {
		return err
	}
	lost := func() (keys []string) {
		for key, revision := range passed {
			if revision < first {
				keys = append(keys, key)
			}
		}
		return keys
	}
	if len(lost()) > 0 { // a snapshot may have them: until then, what is known is better than nothing
		tick.Pause(round, 3*k.bus.guardEvery())
	}
	var seen atomic.Uint64
	var listening conc.WaitGroup
	listening.Go(func() {
		defer end()
		k.misses(round, checkInterval, patterns, &seen)
	})
	err = k.scan(round, patterns, f, &seen, func() {
		seen.Store(max(seen.Load(), newest)) // what was newest then is listed, or has gone
		for _, key := range lost() {
			f(key, newest, nil)
		}
		synced()
	})
	end()
	listening.Wait()
	return err
}

// misses returns true when a watcher has not seen the newest revision of its keys for a while, and false when ctx ends.
func (k *KV[T]) misses(ctx context.Context, interval time.Duration, patterns []string, seen *atomic.Uint64) bool {
	check := time.NewTicker(interval)
	defer check.Stop()
	if k.bus.OfNode() {
		check.Stop() // who polls asks anyway
	}
	for before := uint64(0); ; {
		select {
		case <-ctx.Done():
			return false
		case <-check.C:
		}
		end, err := k.bus.LastSequence(ctx, bucketPrefix+k.bucket)
		if err != nil {
			continue
		}
		newest, err := k.newest(ctx, end, patterns)
		if err != nil {
			continue
		}
		if had := seen.Load(); had > 0 && (end < had || had < before) {
			k.bus.log.Warn("bucket is listed again: changes did not come", "bucket", k.bucket, "revision", had, "newest", newest)
			return true
		}
		before = newest
	}
}

// newest returns the newest revision of the keys that match patterns, in a bucket that ends at a revision. The list of
// these keys would say the same, but there can be a million of them. No direct read takes a wildcard.
func (k *KV[T]) newest(ctx context.Context, end uint64, patterns []string) (newest uint64, err error) {
	if len(patterns) == 0 {
		return end, nil
	}
	for _, filter := range k.filters(patterns) {
		try, cancel := exchange(ctx)
		last, err := k.bus.messages.GetLastMsg(bucketPrefix+k.bucket, filter, nats.Context(try))
		cancel()
		if errors.Is(err, nats.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("look at %s: %w", filter, err)
		}
		newest = max(newest, last.Sequence)
	}
	return newest, nil
}

// filters returns the subjects of the keys that match patterns; all if there are none.
func (k *KV[T]) filters(patterns []string) []string {
	if len(patterns) == 0 {
		patterns = []string{">"}
	}
	filters := make([]string, len(patterns))
	for i, p := range patterns {
		filters[i] = k.prefix() + p
	}
	return filters
}

// prefix begins the subjects of all keys.
func (k *KV[T]) prefix() string { return "$KV." + k.bucket + "." }

// scan reads the newest value of each key and then the changes until ctx ends. From the end of the list on it notes the
// newest revision.
func (k *KV[T]) scan(ctx context.Context, patterns []string, f message, newest *atomic.Uint64, synced func()) error {
	prefix, filters := k.prefix(), k.filters(patterns)
	if k.bus.OfNode() {
		return k.poll(ctx, filters, f, newest, synced)
	}
	messages, err := k.bus.read(ctx, bucketPrefix+k.bucket,
		jetstream.OrderedConsumerConfig{FilterSubjects: filters, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy})
	if err != nil {
		return err
	}
	defer messages.end(ctx)
	if messages.pending == 0 {
		synced()
	}
	for n := uint64(1); ; n++ {
		raw, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := raw.Metadata()
		if err != nil {
			return err
		}
		f(strings.TrimPrefix(raw.Subject(), prefix), meta.Sequence.Stream, raw.Data())
		if n >= messages.pending {
			newest.Store(max(newest.Load(), meta.Sequence.Stream))
		}
		if n == messages.pending {
			synced()
		}
	}
}
