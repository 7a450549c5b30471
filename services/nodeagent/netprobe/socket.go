package netprobe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What the kernel adds to a datagram.
const (
	wrapIPv4 = 20 + 8
	wrapIPv6 = 40 + 8
)

// receiveBytes is room for the probes of a second in which the agent does not get to run: what overflows would look
// like loss in the network.
const receiveBytes = 4 << 20

// socket sends with a class and a hop limit for each packet, and keeps the errors that routers send back.
type socket struct {
	conn  *net.UDPConn
	raw   syscall.RawConn
	local netip.AddrPort
	// read is set once it has a reader.
	read bool
}

func openSocket(ctx context.Context, at netip.AddrPort) (*socket, error) {
	network := "udp4"
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if at.Addr().Is6() {
		network, level, option = "udp6", unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), level, option, 1)
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) // else waits are unknown

			if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBytes) != nil { // needs a privilege
				failed = errors.Join(failed, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBytes))
			}
		})
		return errors.Join(err, failed)
	}}
	packets, err := config.ListenPacket(ctx, network, at.String())
	if err != nil {
		return nil, fmt.Errorf("open probe socket %s: %w", at, err)
	}
	conn := packets.(*net.UDPConn)
	raw, err := conn.SyscallConn()
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open probe socket %s: %w", at, err)
	}
	return &socket{conn: conn, raw: raw, local: conn.LocalAddr().(*net.UDPAddr).AddrPort()}, nil
}

// wire returns the size of a datagram with what the kernel adds.
func (s *socket) wire(payload int) int {
	if s.local.Addr().Is6() {
		return payload + wrapIPv6
	}
	return payload + wrapIPv4
}

// send sends one datagram; hops 0 means the usual limit. An error from a router about an earlier datagram is no
// reason to fail: the kernel reports it once, so send tries again.
func (s *socket) send(data []byte, to netip.AddrPort, dscp, hops int) error {
	level, class, limit := int32(unix.IPPROTO_IP), int32(unix.IP_TOS), int32(unix.IP_TTL)
	if s.local.Addr().Is6() {
		level, class, limit = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_HOPLIMIT
	}
	control := appendControl(nil, level, class, int32(dscp)<<2) // the two bits below are for congestion notification
	if hops > 0 {
		control = appendControl(control, level, limit, int32(hops))
	}
	_, _, err := s.conn.WriteMsgUDPAddrPort(data, control, to)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		_, _, err = s.conn.WriteMsgUDPAddrPort(data, control, to)
	}
	return err
}

// appendControl appends one integer of ancillary data in the kernel's layout: length, level, type, value, padding.
func appendControl(data []byte, level, name, value int32) []byte {
	end := len(data) + unix.CmsgSpace(4)
	length := unix.CmsgLen(4)
	if unix.SizeofCmsghdr == 16 {
		data = binary.NativeEndian.AppendUint64(data, uint64(length))
	} else {
		data = binary.NativeEndian.AppendUint32(data, uint32(length))
	}
	data = binary.NativeEndian.AppendUint32(data, uint32(level))
	data = binary.NativeEndian.AppendUint32(data, uint32(name))
	data = binary.NativeEndian.AppendUint32(data, uint32(value))
	return append(data, make([]byte, end-len(data))...)
}

// receive waits for a datagram. waited is how long it lay in the kernel before this process got to run, 0 if unknown.
// On a busy machine that is milliseconds, which say nothing about the network.
func (s *socket) receive(data []byte) (n int, from netip.AddrPort, waited time.Duration, err error) {
	const timespec = 16 // bytes, on machines of 64 bits; less on others
	control := make([]byte, unix.CmsgSpace(timespec))
	n, m, _, from, err := s.conn.ReadMsgUDPAddrPort(data, control)
	if err != nil {
		return 0, from, 0, err
	}
	if arrived, known := arrival(control[:m]); known {
		waited = time.Since(arrived)
	}
	if waited < 0 || waited > stalledAfter { // the clock was set meanwhile
		waited = 0
	}
	return n, from, waited, nil
}

// arrival returns when the kernel got a datagram, from the ancillary data that came with it.
func arrival(control []byte) (time.Time, bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, false
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_TIMESTAMPNS {
			continue
		}
		var at unix.Timespec
		_, err := binary.Decode(m.Data, binary.NativeEndian, &at)
		return time.Unix(at.Unix()), err == nil
	}
	return time.Time{}, false
}

// refusal is what a router or the target answered to a datagram.
type refusal struct {
	// original is the beginning of the datagram, as much as was returned, and target where it was sent.
	original []byte
	target   netip.AddrPort
	from     netip.Addr
	// expired is set if the datagram had used up its hop limit.
	expired bool
}

// refusals takes what has come back since the last call.
func (s *socket) refusals() []refusal {
	var all []refusal
	data, control := make([]byte, 2048), make([]byte, 512)
	for {
		n, m := 0, 0
		var to unix.Sockaddr
		var failed error
		err := s.raw.Control(func(fd uintptr) {
			n, m, _, to, failed = unix.Recvmsg(int(fd), data, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		})
		if err != nil || failed != nil {
			return all
		}
		if from, expired, known := offender(control[:m]); known {
			all = append(all, refusal{slices.Clone(data[:n]), addressOf(to), from, expired})
		}
	}
}

// addressOf converts the kernel's address of a datagram.
func addressOf(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	default:
		return netip.AddrPort{}
	}
}

// offender returns the sender of an ICMP error, and whether it says that the hop limit was used up. The address
// follows struct sock_extended_err (16 bytes) as a struct sockaddr.
func offender(control []byte) (from netip.Addr, expired, known bool) {
	const origin, kind, family4, family6 = 4, 5, 16 + 4, 16 + 8
	const timeExceeded4, timeExceeded6 = 11, 3
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return netip.Addr{}, false, false
	}
	for _, m := range messages {
		v4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
		v6 := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		switch {
		case v4 && len(m.Data) >= family4+4 && m.Data[origin] == unix.SO_EE_ORIGIN_ICMP:
			a, ok := netip.AddrFromSlice(m.Data[family4 : family4+4])
			return a, m.Data[kind] == timeExceeded4, ok
		case v6 && len(m.Data) >= family6+16 && m.Data[origin] == unix.SO_EE_ORIGIN_ICMP6:
			a, ok := netip.AddrFromSlice(m.Data[family6 : family6+16])
			return a, m.Data[kind] == timeExceeded6, ok
		}
	}
	return netip.Addr{}, false, false
}
