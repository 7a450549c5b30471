// Package bus is the only door to JetStream: it publishes facts with their keys, runs durable consumers, and offers
// typed key-value buckets that are changed by compare-and-swap. Acks and message ids are hints that make repetition
// rare; compare-and-swap on a record makes it harmless.
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Errors that callers distinguish.
var (
	// ErrConflict: another process changed the record or appended to the subject first.
	ErrConflict = errors.New("changed by another process")
	// ErrNotFound: the key or message does not exist.
	ErrNotFound = errors.New("not found")
	// ErrPoison marks a message that no repetition will make good: it is stored in POISON with the reason.
	ErrPoison = errors.New("poison")
	// ErrAway: the server did not answer.
	ErrAway = errors.New("bus does not answer")
	// ErrStuck: the server is connected but has stored nothing for a while, although it was asked to. After a full disk
	// only a restart of the server helps.
	ErrStuck = errors.New("bus is connected but stores nothing")
)

// Config is the address of the bus and the identity of the client.
type Config struct {
	URL string
	// Name is the service's name: the source of its facts and the name of its connection.
	Name string
	// Keys is the folder with the key of the connection's role. Without such a key it connects as nobody, which a server
	// with accounts refuses.
	Keys string
	Log  *slog.Logger
	// Replicas is the number of servers of a NATS cluster that store each stream and bucket (0: 1).
	Replicas int
	// Meter counts what the connection does.
	Meter *Meter
	// Records are those of the process: its connections share what they decode (default: a set of its own).
	Records *Records
	// GuardEvery is the interval at which a guard of the connection looks at the streams (0: three seconds).
	GuardEvery time.Duration
	// Options are added for tests.
	Options []nats.Option
	// Here, if not nil, is the server at URL, in this process: the connection does without the network.
	Here nats.InProcessConnProvider
}

// Bus is a connection. It reconnects for ever; meanwhile calls fail at once with ErrAway, and the caller's loop retries
// them.
type Bus struct {
	config Config
	// role is what the key of the connection stands for; empty without one.
	role string
	// voucher signs what the role asks for, roster checks such signatures; nil without a key.
	voucher *identity.Voucher
	roster  *identity.Roster
	nc      *nats.Conn
	js      jetstream.JetStream
	// messages reads single messages.
	messages nats.JetStreamContext
	name     string
	log      *slog.Logger
	// records are what watchers share.
	records *Records
	// replicas is the number of replicas of each stream and bucket that Ensure makes.
	replicas int

	mu sync.Mutex
	// readers has a function for each reading loop that ends its present round: see unbroken.
	readers map[context.Context]context.CancelFunc
	// committers are those of the streams that were written to. They work in writing, until closed.
	committers map[pace]*committer
	writing    conc.WaitGroup
	closed     bool
	// guard watches over the streams, if the connection is a service's; stopGuard ends one of this connection's own.
	guard     *Guard
	stopGuard func()
	// unanswered is the time of the first write without an answer since the last answered write; zero while writes are
	// answered.
	unanswered  time.Time
	link        link
	refusedLast refusedLast
	meter       *Meter
	trouble     trouble
}

// requestTimeout bounds one exchange with the server: a request sent while a server restarts may never be answered.
const requestTimeout = 2 * time.Second

func exchange(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}

// Connect opens the bus and waits until the server answers or ctx ends.
func Connect(ctx context.Context, c Config) (*Bus, error) {
	b := &Bus{config: c, name: c.Name, log: c.Log, meter: c.Meter, replicas: max(c.Replicas, 1), readers: map[context.Context]context.CancelFunc{}, committers: map[pace]*committer{}}
	if b.records = c.Records; b.records == nil {
		b.records = NewRecords()
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	role, key, err := credentials(c)
	if err != nil {
		return nil, err
	}
	if b.role = role; role != "" {
		if b.voucher, err = identity.Keys(c.Keys).Voucher(role); err != nil {
			return nil, err
		}
		if b.roster, err = identity.Keys(c.Keys).Roster(); err != nil {
			return nil, err
		}
	}
	options := slices.Concat([]nats.Option{
		nats.Name("switchyard-" + c.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(200 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		// A publish while disconnected must fail now. It must not be stored later, after the caller got a timeout.
		nats.ReconnectBufSize(-1),
		nats.ReconnectHandler(func(nc *nats.Conn) { b.connected(nc.ConnectedUrlRedacted()) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.disconnected(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { b.refused(err) }),
		// What refuses a key now may know it later: a server that starts again with another configuration.
		nats.IgnoreAuthErrorAbort(),
	}, key, c.Options)
	if c.Here != nil {
		options = append(options, nats.InProcessServer(c.Here))
	}
	nc, err := nats.Connect(c.URL, options...)
	if errors.Is(err, nats.ErrAuthorization) {
		err = b.refusal()
	}
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w", Redacted(c.URL), err)
	}
	b.nc = nc
	if err := b.waitConnected(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect %s: %w", Redacted(c.URL), err)
	}
	b.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
	if err == nil {
		b.messages, err = nc.JetStream()
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("open JetStream at %s: %w", Redacted(c.URL), err)
	}
	return b, nil
}

func (b *Bus) waitConnected(ctx context.Context) error {
	for range tick.Every(ctx, 20*time.Millisecond) {
		if b.nc.IsConnected() {
			return nil
		}
		if err := b.nc.LastError(); errors.Is(err, nats.ErrAuthorization) {
			return b.refusal()
		}
	}
	return fmt.Errorf("%w: %w", ErrAway, ctx.Err())
}

// Close drains and closes the connection.
func (b *Bus) Close() {
	b.mu.Lock()
	stop := b.stopGuard
	b.closed = true
	b.mu.Unlock()
	if stop != nil {
		stop()
	}
	b.nc.Close()
	b.writing.Wait()
}

// beside runs f beside the caller. On a closed connection, where each write fails at once, it returns after f.
func (b *Bus) beside(f func()) {
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.writing.Go(f)
	}
	b.mu.Unlock()
	if closed {
		f()
	}
}

// stuckAfter is how long writes may go unanswered before the bus counts as stuck.
const stuckAfter = 10 * time.Second

// Ready returns nil if the server is connected, stores what it receives, and has what a service must know to act.
func (b *Bus) Ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.nc.IsConnected() {
		return b.away()
	}
	if b.guard != nil {
		if err := b.guard.usable(); err != nil {
			return err
		}
	}
	if !b.unanswered.IsZero() && b.trouble.words != "" {
		return fmt.Errorf("%w: %s", ErrAway, b.trouble.words) // a restart would not help
	}
	if !b.unanswered.IsZero() && time.Since(b.unanswered) > stuckAfter {
		return fmt.Errorf("%w since %s", ErrStuck, b.unanswered.Format(time.TimeOnly))
	}
	return nil
}

// watched returns the guard, or nil.
func (b *Bus) watched() *Guard {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.guard
}

// answered records the end of an exchange that began at a time. Even a refusal counts as an answer.
func (b *Bus) answered(began time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout):
		b.unanswered = time.Time{}
	case b.unanswered.IsZero() && b.nc.IsConnected():
		b.unanswered = began
	}
}

// Name returns the name under which facts are published.
func (b *Bus) Name() string { return b.name }

// unbroken returns a context for one round of a reading loop. It ends with ctx, and when what was on its way to the
// reader may have been lost: when the connection is new, or a stream was made again.
func (b *Bus) unbroken(ctx context.Context) (context.Context, context.CancelFunc) {
	round, end := context.WithCancel(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readers[round] = end
	return round, func() {
		end()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.readers, round)
	}
}

// wake ends the round of every reading loop: each begins again behind what it has handled.
func (b *Bus) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, end := range b.readers {
		end()
	}
}

// Ensure creates or updates the streams and buckets of the contract, or where another process does so, waits for them.
// It repeats until it succeeds or ctx ends, since a server that has just started answers before its JetStream is ready,
// and one that has just stopped never answers: so each request has a time of its own.
func (b *Bus) Ensure(ctx context.Context) error {
	return b.asOperator(ctx, func(o *Bus) error { return o.makeAll(ctx) }, func() error { return b.awaitAll(ctx) })
}

func (b *Bus) makeAll(ctx context.Context) error {
	stated := ""
	return retry(ctx, func() (err error) {
		defer func() {
			if err != nil && err.Error() != stated && !errors.Is(err, build.ErrOther) {
				stated = err.Error()
				b.log.Warn("streams and buckets are not there yet", "error", err)
			}
		}()
		if err := b.agree(ctx, build.Newer); err != nil {
			return err
		}
		age, err := b.age(ctx)
		if err != nil {
			return err
		}
		for _, s := range event.Streams() {
			if err := b.ensureStream(ctx, s, age); err != nil {
				return err
			}
		}
		for _, k := range contract.Buckets() {
			if err := b.ensureBucket(ctx, k, age); err != nil {
				return err
			}
		}
		if err := b.ensureUploads(ctx); err != nil {
			return err
		}
		return b.Mark(ctx, event.StreamJobs, markContract, markOf(build.This()))
	})
}

func (b *Bus) ensureStream(ctx context.Context, s event.Stream, age installationAge) error {
	return b.ensure(ctx, s.Name, age, nil, func(c *jetstream.StreamConfig) {
		c.Subjects, c.Description, c.Discard, c.MaxAge, c.MaxBytes = s.Subjects, s.Doc, jetstream.DiscardNew, s.MaxAge, s.MaxBytes
		if s.DropOld {
			c.Discard = jetstream.DiscardOld
		}
		c.MaxMsgsPerSubject, c.Duplicates = event.MaxFactsPerSubject, min(identity.KeysKept, s.MaxAge)
	})
}

func (b *Bus) ensureBucket(ctx context.Context, k contract.BucketInfo, age installationAge) error {
	return b.ensure(ctx, bucketPrefix+k.Name, age, marksOfNew(k, age), func(c *jetstream.StreamConfig) {
		c.Subjects, c.Description, c.Discard, c.MaxAge, c.MaxBytes = []string{"$KV." + k.Name + ".>"}, k.Doc, jetstream.DiscardNew, k.Keep, contract.MaxBucketBytes
		c.MaxMsgsPerSubject, c.AllowRollup, c.DenyDelete = 1, true, true // as clients expect of buckets
		c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = true, markerTime
		if identity.Republished(k) {
			c.RePublish = &jetstream.RePublish{Source: c.Subjects[0], Destination: identity.Changes(k.Name + ".>")}
		}
	})
}

// ensure makes a stream with a configuration, or changes the one that is there. A stream that is made again goes on
// with higher sequences than it had: records keep sequences, and readers order by them.
func (b *Bus) ensure(ctx context.Context, name string, age installationAge, marks map[string]string, set func(*jetstream.StreamConfig)) error {
	want := jetstream.StreamConfig{Name: name, Storage: jetstream.FileStorage, Metadata: marks}
	made, err := b.js.Stream(ctx, name)
	if err == nil {
		want = made.CachedInfo().Config
	} else if age == used {
		want.FirstSeq = uint64(time.Now().UnixMicro())
	}
	set(&want)
	want.AllowDirect, want.AllowAtomicPublish, want.Replicas = true, true, b.replicas
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		_, err = b.js.CreateStream(ctx, want)
	case err == nil && !reflect.DeepEqual(want, made.CachedInfo().Config):
		_, err = b.js.UpdateStream(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("ensure stream %s: %w", name, err)
	}
	return nil
}

// retry repeats f with a growing delay until it succeeds, ctx ends, or no repetition can help because another version
// is needed; then the last error of f is returned.
func retry(ctx context.Context, f func() error) error {
	delay := 50 * time.Millisecond
	for {
		err := f()
		if err == nil || errors.Is(err, build.ErrOther) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(delay):
		}
		delay = min(2*delay, 2*time.Second)
	}
}

// URL returns the server that the bus is connected to, without a password.
func (b *Bus) URL() string { return b.nc.ConnectedUrlRedacted() }
