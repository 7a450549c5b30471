package netprobe

import (
	"bytes"
	"testing"
	"time"
)

func aPacket() packet {
	return packet{kind: kindTrace, dscp: 46, hops: 3, flags: isExtra | isSuspected, flow: 77, session: 5, sequence: 6, sent: time.Unix(1000, 7)}
}

func TestAPacketIsReadAsItWasWritten(t *testing.T) {
	key := []byte("key")
	data := append(aPacket().append(nil, key), "padding"...)
	got, err := parse(data, key)
	if err != nil || got != aPacket() {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestForgedPacketsAreRefused(t *testing.T) {
	key := []byte("key")
	good := aPacket().append(nil, key)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := parse(bad, key); err == nil {
			t.Errorf("a packet with byte %d changed was taken", i)
		}
	}
	for _, wrong := range [][]byte{nil, {}, []byte("another")} {
		if _, err := parse(good, wrong); err == nil {
			t.Errorf("a packet was taken with the key %q", wrong)
		}
	}
}

func FuzzParse(f *testing.F) {
	key := []byte("key")
	f.Add(aPacket().append(nil, key))
	f.Add([]byte("YARD"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := parse(data, key); err == nil && !bytes.Equal(p.append(nil, key), data[:HeaderBytes]) && data[7] == 0 && bytes.Equal(data[12:16], make([]byte, 4)) {
			t.Errorf("%x is read as %+v", data, p)
		}
	})
}

func TestEachProbeIsLetThroughOnce(t *testing.T) {
	now := time.Unix(10_000, 0)
	g := guard{}
	at := func(session, sequence uint64, age time.Duration) packet {
		return packet{flow: 1, session: session, sequence: sequence, sent: now.Add(-age)}
	}
	for i, c := range []struct {
		in   packet
		want bool
		why  string
	}{
		{at(1, 10, 9*time.Second), true, "the first"},
		{at(1, 10, 9*time.Second), false, "the same again"},
		{at(1, 12, 8*time.Second), true, "a later one"},
		{at(1, 11, 8*time.Second), true, "one that was overtaken"},
		{at(1, 11, 8*time.Second), false, "that again"},
		{at(1, 200, 7*time.Second), true, "one far ahead"},
		{at(1, 12, 8*time.Second), false, "one from before the window"},
		{at(1, 136, 8*time.Second), true, "the last of the window"},
		{at(1, 135, 8*time.Second), false, "one behind it"},
		{at(2, 1, 8*time.Second), false, "a session that is older than the one that was seen"},
		{at(2, 1, 6*time.Second), true, "a new session"},
		{at(1, 201, 5*time.Second), true, "a session with a later probe"},
		{at(2, 2, 6*time.Second), false, "one of the session before"},
	} {
		if got := g.admit(c.in, now); got != c.want {
			t.Errorf("%d: %s: let through: %v", i, c.why, got)
		}
	}
}

func TestUnknownFlowsDoNotFillTheMemory(t *testing.T) {
	now := time.Unix(10_000, 0)
	g := guard{}
	for flow := range uint32(maxFlows + 10) {
		g.admit(packet{flow: flow, session: 1, sequence: 1, sent: now}, now)
	}
	if len(g) != maxFlows {
		t.Errorf("%d flows are remembered", len(g))
	}
	now = now.Add(3 * staleAfter)
	if !g.admit(packet{flow: maxFlows + 20, session: 1, sequence: 1, sent: now}, now) || len(g) != 1 {
		t.Errorf("old flows are kept: %d", len(g))
	}
}
