package bus

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/switchyard-dl/switchyard/libs/identity"
)

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

// refused logs what the server refuses. The caller of a refused request gets no answer but this.
func (b *Bus) refused(err error) { b.log.Warn("bus error", "role", b.role, "error", err) }

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
