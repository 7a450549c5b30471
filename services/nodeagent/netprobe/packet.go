// Package netprobe sends probes to other nodes, answers theirs, and counts both, flow by flow. It reports what was
// sent and what arrived, and does not decide which link is to blame.
//
// A probe is a UDP datagram with a code that only holders of the installation's key can make. An answer is never
// larger than its probe, each probe is answered once, and nothing is sent to an address that is not that of a
// registered node; so an agent cannot be used to flood anybody.
package netprobe

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// kind of a packet.
type kind byte

const (
	kindProbe kind = iota + 1
	kindReply
	kindTrace
	kindTraceReply
)

// answer returns the kind of the reply to a packet; 0 if it gets none.
func (k kind) answer() kind {
	switch k {
	case kindProbe:
		return kindReply
	case kindTrace:
		return kindTraceReply
	default:
		return 0
	}
}

// flags say more about a probe.
type flags byte

const (
	// isExtra: it is counted where it arrives, and asks for no answer.
	isExtra flags = 1 << iota
	// isSuspected: a flow of its sender lost a probe lately.
	isSuspected
)

// packet is the content of a probe and of its answer, which repeats it.
type packet struct {
	kind kind
	dscp byte
	// hops is the hop limit that a trace was sent with.
	hops  byte
	flags flags
	flow  uint32
	// held is how long a probe waited on its target's node until the answer was made, at most maxHeld; 0 in a probe.
	held time.Duration
	// session is drawn at random whenever an agent starts; sequence counts from there.
	session  uint64
	sequence uint64
	sent     time.Time
}

// maxHeld is the longest time that the 32 bits for nanoseconds hold.
const maxHeld = math.MaxUint32 * time.Nanosecond

const (
	magic     = 0x59415244
	macBytes  = 16
	macOffset = 40
	// HeaderBytes is the size of an answer, and the smallest size of a probe.
	HeaderBytes = macOffset + macBytes
)

var (
	errForeign = errors.New("not a probe")
	errForged  = errors.New("code does not match")
)

// append appends the packet with its code to data.
func (p packet) append(data, key []byte) []byte {
	start := len(data)
	data = binary.BigEndian.AppendUint32(data, magic)
	data = append(data, byte(p.kind), p.dscp, p.hops, byte(p.flags))
	data = binary.BigEndian.AppendUint32(data, p.flow)
	data = binary.BigEndian.AppendUint32(data, uint32(min(max(p.held, 0), maxHeld)))
	data = binary.BigEndian.AppendUint64(data, p.session)
	data = binary.BigEndian.AppendUint64(data, p.sequence)
	data = binary.BigEndian.AppendUint64(data, uint64(p.sent.UnixNano()))
	return append(data, code(data[start:], key)...)
}

// parse decodes a packet with a valid code.
func parse(data, key []byte) (packet, error) {
	if len(data) < HeaderBytes || binary.BigEndian.Uint32(data) != magic {
		return packet{}, errForeign
	}
	if len(key) == 0 || !hmac.Equal(code(data[:macOffset], key), data[macOffset:HeaderBytes]) {
		return packet{}, errForged
	}
	return packet{
		kind: kind(data[4]), dscp: data[5], hops: data[6], flags: flags(data[7]), flow: binary.BigEndian.Uint32(data[8:]),
		held:    time.Duration(binary.BigEndian.Uint32(data[12:])),
		session: binary.BigEndian.Uint64(data[16:]), sequence: binary.BigEndian.Uint64(data[24:]),
		sent: time.Unix(0, int64(binary.BigEndian.Uint64(data[32:]))),
	}, nil
}

func code(data, key []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(data)
	return h.Sum(nil)[:macBytes]
}
