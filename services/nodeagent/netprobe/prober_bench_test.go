package netprobe

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// BenchmarkProbing measures what probing costs an agent: with its usual settings it sends ten probes of 400 bytes in
// a second and answers as many. An iteration is a slot.
func BenchmarkProbing(b *testing.B) {
	for _, c := range []struct{ rate, size int }{{10, 400}, {40, 100}} {
		b.Run(fmt.Sprintf("rate=%d/bytes=%d", c.rate, c.size), func(b *testing.B) { probing(b, c.rate, c.size) })
	}
}

func probing(b *testing.B, rate, size int) {
	const agents = 2
	var probers [agents]*Prober
	var all []netip.AddrPort
	for i := range probers {
		p, err := Open(b.Context(), Config{
			Node: "n", Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, ProbesPerSecond: float64(rate), ProbeBytes: size,
			PacketsPerSecond: max(60, 4*rate), BytesPerSecond: 12_500,
		})
		if err != nil {
			b.Fatal(err)
		}
		probers[i], all = p, append(all, p.listeners[0].local)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var running conc.WaitGroup
	for i, p := range probers {
		p.Register(all)
		f := flow(p, probers[1-i], 0)
		if err := p.Use(ctx, train.Pinglist{Key: []byte("k"), Probes: []train.Flow{f}}, time.Now().Add(-2*train.ProbeSlot)); err != nil {
			b.Fatal(err)
		}
		running.Go(func() { _ = p.Run(ctx) })
	}
	before, began := used(b), time.Now()
	for b.Loop() {
		<-time.After(train.ProbeSlot)
	}
	seconds, cpu := time.Since(began).Seconds(), used(b)-before
	wire := 0
	for _, p := range probers {
		sent, acked, received := totals(p)
		wire += sent*(size+wrapIPv4) + received*(HeaderBytes+wrapIPv4) // what leaves the agent
		if sent == 0 || acked != received && acked == 0 {
			b.Fatalf("%d sent, %d received, %d answered", sent, received, acked)
		}
	}
	cancel()
	running.Wait()
	b.ReportMetric(100*cpu.Seconds()/seconds/agents, "%core/agent")
	b.ReportMetric(float64(8*wire)/seconds/agents/1000, "kbit/s-out/agent")
	b.ReportMetric(0, "ns/op")
}

// used is the processor time of this process.
func used(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
