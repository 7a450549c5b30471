package horovod

import (
	"context"
	"net"
	"os"

	"github.com/switchyard-dl/switchyard/libs/proc"
)

// Horovod has no password for its rendezvous, and every user of a machine reaches its loopback: a stranger who puts an
// address there becomes part of a training. The kernel knows the user of each connection of this machine.

type peerKey struct{}

// withPeer keeps the user at the other end of a connection; none if the kernel does not say.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if uid, err := proc.Peer(c); err == nil {
		return context.WithValue(ctx, peerKey{}, uid)
	}
	return ctx
}

// mayMeet reports whether a request comes from this user or from root.
func mayMeet(ctx context.Context) bool {
	uid, known := ctx.Value(peerKey{}).(int)
	return known && (uid == os.Geteuid() || uid == 0)
}
