package proc

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Peer returns the user at the other end of a connection over the loopback, by the kernel's tables of connections: the
// end that is local there is remote here.
func Peer(c net.Conn) (uid int, err error) {
	here, err1 := netip.ParseAddrPort(c.LocalAddr().String())
	there, err2 := netip.ParseAddrPort(c.RemoteAddr().String())
	if err1 != nil || err2 != nil || !there.Addr().Unmap().IsLoopback() {
		return -1, fmt.Errorf("%s: want a connection over the loopback", c.RemoteAddr())
	}
	for name, written := range map[string]func(netip.AddrPort) string{"/proc/net/tcp": asFour, "/proc/net/tcp6": asSix} {
		if uid, found := owner(name, written(there), written(here)); found {
			return uid, nil
		}
	}
	return -1, fmt.Errorf("the kernel has no open connection of %s", there)
}

// owner looks for a connection in a table of the kernel.
func owner(name, local, remote string) (uid int, found bool) {
	table, err := os.Open(name)
	if err != nil {
		return -1, false // a machine may have no IPv6
	}
	defer func() { _ = table.Close() }()
	for lines := bufio.NewScanner(table); lines.Scan(); {
		// sl, local address, remote address, state, queues, timer, retransmits, uid. A connection that its other end has
		// closed belongs to nobody there, and is shown as root's.
		if fields := strings.Fields(lines.Text()); len(fields) > 7 && fields[1] == local && fields[2] == remote && fields[3] == established {
			uid, err := strconv.Atoi(fields[7])
			return uid, err == nil
		}
	}
	return -1, false
}

// established is the state of a connection whose two ends are open.
const established = "01"

// asFour writes an address as the table of IPv4 does: the bytes of the address as a number of this machine, in
// hexadecimal. An address of IPv6 is in no line of that table.
func asFour(at netip.AddrPort) string {
	if !at.Addr().Unmap().Is4() {
		return ""
	}
	bytes := at.Addr().Unmap().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(bytes[:]), at.Port())
}

// asSix writes an address as the table of IPv6 does: as four such numbers. It has addresses of IPv4 as mapped ones.
func asSix(at netip.AddrPort) string {
	bytes := at.Addr().As16()
	var written strings.Builder
	for n := 0; n < len(bytes); n += 4 {
		fmt.Fprintf(&written, "%08X", binary.NativeEndian.Uint32(bytes[n:]))
	}
	return fmt.Sprintf("%s:%04X", &written, at.Port())
}
