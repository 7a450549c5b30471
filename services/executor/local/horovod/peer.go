package horovod

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Horovod has no password for its rendezvous, and every user of a machine reaches its loopback: a stranger who puts an
// address there becomes part of a training. The kernel knows the user of each connection of this machine.

type peerKey struct{}

// withPeer keeps the user at the other end of a connection; none if the kernel does not say.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if uid, err := peerOf(c); err == nil {
		return context.WithValue(ctx, peerKey{}, uid)
	}
	return ctx
}

// mayMeet reports whether a request comes from this user or from root.
func mayMeet(ctx context.Context) bool {
	uid, known := ctx.Value(peerKey{}).(int)
	return known && (uid == os.Geteuid() || uid == 0)
}

// peerOf returns the user at the other end of a connection over the loopback, by the kernel's table of connections: the
// end that is local there is remote here.
func peerOf(c net.Conn) (uid int, err error) {
	here, err1 := netip.ParseAddrPort(c.LocalAddr().String())
	there, err2 := netip.ParseAddrPort(c.RemoteAddr().String())
	if err1 != nil || err2 != nil || !here.Addr().Is4() || !there.Addr().Is4() {
		return -1, fmt.Errorf("%s: want a connection of IPv4", c.RemoteAddr())
	}
	table, err := os.Open("/proc/net/tcp")
	if err != nil {
		return -1, err
	}
	defer func() { _ = table.Close() }()
	local, remote := asKernel(there), asKernel(here)
	for lines := bufio.NewScanner(table); lines.Scan(); {
		// sl, local address, remote address, state, queues, timer, retransmits, uid. A connection that its other end has
		// closed belongs to nobody there, and is shown as root's.
		if fields := strings.Fields(lines.Text()); len(fields) > 7 && fields[1] == local && fields[2] == remote && fields[3] == established {
			return strconv.Atoi(fields[7])
		}
	}
	return -1, fmt.Errorf("the kernel has no open connection of %s", there)
}

// established is the state of a connection whose two ends are open.
const established = "01"

// asKernel writes an address as the table does: the bytes of the address as a number of this machine, in hexadecimal.
func asKernel(at netip.AddrPort) string {
	bytes := at.Addr().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(bytes[:]), at.Port())
}
