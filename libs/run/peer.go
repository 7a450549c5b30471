package run

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// connKey is the key of a request's connection in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Peer returns the user of the machine at the other end of the Unix socket on which a request came, as the kernel knows
// him.
func Peer(ctx context.Context) (uid int, err error) {
	c, is := ctx.Value(connKey{}).(*net.UnixConn)
	if !is {
		return 0, errNoPeer
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("ask who is connected: %w", err)
	}
	var peer *unix.Ucred
	failed := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(failed, err); err != nil {
		return 0, fmt.Errorf("ask who is connected: %w", err)
	}
	return int(peer.Uid), nil
}

var errNoPeer = errors.New("the connection is no Unix socket")
