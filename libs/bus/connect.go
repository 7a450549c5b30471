package bus

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/identity"
)

// link is the state of the connection.
type link struct {
	// awayAt is when the connection was lost, why is the reason; awayAt is zero while it stands.
	awayAt time.Time
	why    error
	// returns counts how often it came back.
	returns uint64
}

func (b *Bus) disconnected(why error) {
	if b.nc != nil && b.nc.IsClosed() {
		return // by this process
	}
	b.mu.Lock()
	b.link.awayAt, b.link.why = time.Now(), why
	for _, c := range b.committers {
		c.disconnected()
	}
	b.mu.Unlock()
	b.log.Warn("bus disconnected: trying again until it is back", "error", why)
}

func (b *Bus) connected(url string) {
	b.mu.Lock()
	away := time.Since(b.link.awayAt)
	b.link.awayAt = time.Time{}
	b.link.returns++
	b.mu.Unlock()
	b.meter.reconnected()
	b.log.Info("bus connected again", "url", url, "away", away.Round(time.Millisecond))
	b.wake()
}

// away returns ErrAway with the time and the cause of the disconnect. The caller holds the lock.
func (b *Bus) away() error {
	if b.link.awayAt.IsZero() {
		return ErrAway
	}
	return fmt.Errorf("%w: not connected since %s (%w)", ErrAway, b.link.awayAt.Format(time.TimeOnly), b.link.why)
}

// Reconnects returns how often the connection was lost and came back.
func (b *Bus) Reconnects() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.link.returns
}

// markContract is the key in the metadata of JOBS that says which versions of facts and records the bus holds, and
// which program has last made its streams. Every role may read it.
const markContract = "switchyard-contract"

// contractForm is the form of its value.
const contractForm = "facts v%d, records v%d, %s"

func markOf(b contract.Build) string {
	return fmt.Sprintf(contractForm, b.Events, b.Records, b.Version)
}

// speaks reads such a value. Streams from before there was one have none.
func speaks(mark string) contract.Build {
	var b contract.Build
	if _, err := fmt.Sscanf(mark, contractForm, &b.Events, &b.Records, &b.Version); err != nil {
		return build.First("before v0.1.0")
	}
	return b
}

// Agree returns an error that says who has to be upgraded unless this program speaks the facts and records that the bus
// holds.
func (b *Bus) Agree(ctx context.Context) error { return b.agree(ctx, anyDifference) }

func anyDifference(contract.Build, contract.Build) bool { return true }

// agree returns an error if the versions of the bus differ from this program's in a way that matters to the caller:
// anyDifference, or build.Newer if what is older can be upgraded by this program.
func (b *Bus) agree(ctx context.Context, matters func(theirs, mine contract.Build) bool) error {
	ctx, cancel := exchange(ctx)
	defer cancel()
	jobs, err := b.js.Stream(ctx, event.StreamJobs)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask which versions the bus holds: %w", b.cause(err))
	}
	return b.compare(jobs.CachedInfo().Config.Metadata[markContract], matters)
}

func (b *Bus) compare(mark string, matters func(theirs, mine contract.Build) bool) error {
	mine, theirs := build.This(), speaks(mark)
	if !matters(theirs, mine) {
		return nil
	}
	return build.Agree(mine, theirs, "the bus at "+b.URL())
}

// ErrRefused means that the server does not let this connection do what it asked for.
var ErrRefused = errors.New("the bus refuses")

// credentials returns the role of a connection, and the key and certificate that prove it; nothing if the folder has no
// key.
func credentials(c Config) (role string, options []nats.Option, err error) {
	role = identity.RoleOf(c.Name)
	file := identity.Keys(c.Keys).File(role)
	if own := identity.Keys(c.Keys).File(identity.Node); file == "" && c.Name == identity.Agent && own != "" {
		role, file = identity.Node, own
	}
	if c.Keys == "" || file == "" {
		return "", nil, nil
	}
	key, err := nats.NkeyOptionFromSeed(file)
	if err != nil {
		return "", nil, fmt.Errorf("read the key of %s in %s: %w", role, file, err)
	}
	options = []nats.Option{key, nats.CustomInboxPrefix(identity.InboxPrefix(role))}
	secure, err := identity.Keys(c.Keys).TLS()
	if secure != nil {
		options = append(options, nats.Secure(secure))
	}
	return role, options, err
}

// OfNode reports whether the connection is in the account of a node, which cannot read jobs and makes no consumers.
func (b *Bus) OfNode() bool { return b.role == identity.Node }

// refusal says why the server does not let the connection in.
func (b *Bus) refusal() error {
	if b.role == "" {
		return fmt.Errorf("%w: it wants a key, and there is no %s.nk in %q: name the folder of keys with --keys or SWITCHYARD_KEYS", ErrRefused, identity.RoleOf(b.config.Name), b.config.Keys)
	}
	return fmt.Errorf("%w: it does not know the key of %s in %s: name the folder of its keys with --keys or SWITCHYARD_KEYS", ErrRefused, b.role, b.config.Keys)
}

// refused logs what the server refuses. The caller of a refused request gets no answer but this. What repeats itself is
// logged once a minute: a client whose key was removed tries several times a second.
func (b *Bus) refused(err error) {
	b.mu.Lock()
	again := b.refusedLast.text == err.Error() && time.Since(b.refusedLast.at) < time.Minute
	if !again {
		b.refusedLast = refusedLast{err.Error(), time.Now()}
	}
	b.mu.Unlock()
	if !again {
		b.log.Warn("bus error", "role", b.role, "error", err)
	}
}

// refusedLast is the last refusal that was logged.
type refusedLast struct {
	text string
	at   time.Time
}

// asOperator has a connection of the operator's do what only that role may. If this process does not have its key, it
// calls otherwise. On a server without accounts every connection may do everything.
func (b *Bus) asOperator(ctx context.Context, do func(o *Bus) error, otherwise func() error) error {
	if b.role == "" || b.role == identity.Operator {
		return do(b)
	}
	if identity.Keys(b.config.Keys).File(identity.Operator) == "" {
		return otherwise()
	}
	c := b.config
	c.Name, c.Meter = identity.Operator, nil
	o, err := Connect(ctx, c)
	if err != nil {
		return err
	}
	defer o.Close()
	return do(o)
}

// awaitAll waits until all streams and buckets are there.
func (b *Bus) awaitAll(ctx context.Context) error {
	return retry(ctx, func() error {
		for _, name := range Watched() {
			if _, err := b.LastSequence(ctx, name); err != nil {
				return fmt.Errorf("wait for who makes the streams (a process with %s.nk): %w", identity.Operator, err)
			}
		}
		return b.Agree(ctx)
	})
}

// Redacted returns the URLs of servers, separated by commas, without passwords.
func Redacted(urls string) string {
	list := strings.Split(urls, ",")
	for i, text := range list {
		u, err := url.Parse(text)
		switch {
		case err != nil:
			list[i] = "(no URL)"
		case u.User != nil:
			list[i] = u.Redacted()
		}
	}
	return strings.Join(list, ",")
}
