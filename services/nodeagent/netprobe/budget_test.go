package netprobe

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNoSecondPassesTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		packets, bytes := rapid.IntRange(1, 100).Draw(t, "packets"), rapid.IntRange(4000, 50_000).Draw(t, "bytes")
		b := newBudget(packets, bytes)
		now := time.Unix(1000, 0)
		type sent struct {
			at    time.Time
			bytes int
		}
		var all []sent
		for range rapid.IntRange(1, 400).Draw(t, "tries") {
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond)
			size := rapid.IntRange(HeaderBytes, 1000).Draw(t, "size")
			if b.allow(now, size) {
				all = append(all, sent{now, size})
			}
		}
		for i := range all {
			n, sum := 0, 0
			for _, s := range all[i:] {
				if s.at.Sub(all[i].at) < time.Second {
					n, sum = n+1, sum+s.bytes
				}
			}
			if n > packets || sum > bytes {
				t.Fatalf("%d packets and %d bytes in a second, of %d and %d", n, sum, packets, bytes)
			}
		}
	})
}

func TestABudgetThatHasNoRoomForItsProbesIsRefused(t *testing.T) {
	good := Config{ProbesPerSecond: 10, ProbeBytes: 400, PacketsPerSecond: 60, BytesPerSecond: 12_500}
	for want, change := range map[string]func(*Config){
		"": func(*Config) {},
		"want at least 4 packets and 1792 bytes in a second: room for as many probes of 448 bytes with headers": func(c *Config) { c.BytesPerSecond = 1791 },
		"46 probes in a second do not fit into three quarters of 60 packets":                                    func(c *Config) { c.ProbesPerSecond, c.BytesPerSecond = 46, 1e6 },
		"21 probes of 448 bytes with headers in a second do not fit into three quarters of 12500 bytes":         func(c *Config) { c.ProbesPerSecond = 21 },
	} {
		c, got := good, ""
		change(&c)
		if err := c.Check(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTheBudgetIsUsed(t *testing.T) {
	b, sent := newBudget(40, 100_000), 0
	start := time.Unix(1000, 0)
	for ms := range 10_000 {
		if b.allow(start.Add(time.Duration(ms)*time.Millisecond), 500) {
			sent++
		}
	}
	if sent < 290 || sent > 400 { // three quarters flow in evenly, one may come at once
		t.Errorf("%d packets in 10 seconds", sent)
	}
}

// TestAnswersLeaveRoomForProbes: however many nodes want answers, a node's own probes go out.
func TestAnswersLeaveRoomForProbes(t *testing.T) {
	b, answers, probes := newBudget(120, 12_500), 0, 0
	start := time.Unix(1000, 0)
	for ms := range 10_000 {
		now := start.Add(time.Duration(ms) * time.Millisecond)
		if b.spare(now, 104) {
			answers++
		}
		if ms%100 == 0 && b.allow(now, 448) {
			probes++
		}
	}
	if probes != 100 || answers < 400 {
		t.Errorf("%d of 100 probes and %d answers", probes, answers)
	}
}
