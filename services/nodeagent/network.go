package nodeagent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/netprobe"
)

// network is what the operator says of probes.
type network struct {
	listen       []string
	rate         float64
	bytes        int
	mostPackets  int
	mostBytes    int
	traceEvery   time.Duration
	listenParsed []netip.AddrPort
}

func (n *network) flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&n.listen, "probe-listen", nil, "address of this node, as HOST:PORT, at which it answers probes of the network; one for each interface that jobs use (empty: the network is not probed)")
	fs.Float64Var(&n.rate, "probe-rate", 10, "how many probes are sent in a second")
	fs.IntVar(&n.bytes, "probe-bytes", 400, "size of a probe")
	fs.IntVar(&n.mostPackets, "probe-budget-packets", 60, "the most packets that are sent in a second: probes, answers and traces")
	fs.IntVar(&n.mostBytes, "probe-budget-bytes", 12_500, "the most bytes of these, headers included")
	fs.DurationVar(&n.traceEvery, "probe-trace-interval", 10*time.Minute, "how often the paths of probes are found again")
}

// validate names every wrong setting.
func (n *network) validate() []error {
	var errs []error
	n.listenParsed = nil
	for _, text := range n.listen {
		at, err := netip.ParseAddrPort(text)
		if err != nil || at.Addr().IsUnspecified() {
			errs = append(errs, fmt.Errorf("--probe-listen %q: want an address of this node and a port, such as 10.0.0.2:7070 or [fd00::2]:7070", text))
			continue
		}
		n.listenParsed = append(n.listenParsed, at)
	}
	const mostRate, mostSize = 1000, 1400
	if !(n.rate > 0 && n.rate <= mostRate) {
		errs = append(errs, fmt.Errorf("--probe-rate %v: want more than 0 and at most %d", n.rate, mostRate))
	}
	if n.bytes < netprobe.HeaderBytes || n.bytes > mostSize {
		errs = append(errs, fmt.Errorf("--probe-bytes %d: want %d to %d", n.bytes, netprobe.HeaderBytes, mostSize))
	}
	if err := n.prober().Check(); err != nil && len(n.listen) > 0 {
		errs = append(errs, fmt.Errorf("--probe-budget-packets %d, --probe-budget-bytes %d: %w", n.mostPackets, n.mostBytes, err))
	}
	if n.traceEvery < time.Second {
		errs = append(errs, fmt.Errorf("--probe-trace-interval %v: want at least 1s", n.traceEvery))
	}
	return errs
}

// prober is what the settings say of probes.
func (n *network) prober() netprobe.Config {
	return netprobe.Config{
		Listen: n.listenParsed, ProbesPerSecond: n.rate, ProbeBytes: n.bytes, PacketsPerSecond: n.mostPackets, BytesPerSecond: n.mostBytes,
	}
}

// links is the part of the agent that probes the network; nil where none is probed.
type links struct {
	node       train.NodeID
	prober     *netprobe.Prober
	bus        *bus.Bus
	nodes      *bus.KV[train.Node]
	lists      *bus.KV[train.Pinglist]
	paths      *bus.KV[train.Paths]
	traceEvery time.Duration
	retrace    chan struct{}
	// session tells the slots of this start of the agent from those of others.
	session string
	log     *slog.Logger

	mu      sync.Mutex
	answers map[string][]netip.AddrPort
	traced  []train.Flow
}

// open opens the sockets; nil where the operator gave no address.
func (n *network) open(ctx context.Context, p run.Process, b *bus.Bus) (*links, error) {
	if len(n.listenParsed) == 0 {
		return nil, nil //nolint:nilnil // an agent that does not probe is none, and its methods know
	}
	l := &links{
		node: p.Common.NodeID(), bus: b, traceEvery: n.traceEvery, retrace: make(chan struct{}, 1), log: p.Log, answers: map[string][]netip.AddrPort{},
		session: strconv.FormatInt(time.Now().UnixNano(), 36),
	}
	var err error
	if l.nodes, err = bus.OpenKV[train.Node](ctx, b, event.BucketNodes); err != nil {
		return nil, err
	}
	if l.lists, err = bus.OpenKV[train.Pinglist](ctx, b, event.BucketProbes); err != nil {
		return nil, err
	}
	if l.paths, err = bus.OpenKV[train.Paths](ctx, b, event.BucketPaths); err != nil {
		return nil, err
	}
	config := n.prober()
	config.Node = l.node
	l.prober, err = netprobe.Open(ctx, config)
	return l, err
}

// describe adds where probes are answered to what is told of the node.
func (l *links) describe(rest func(context.Context, time.Time) train.Node) func(context.Context, time.Time) train.Node {
	if l == nil {
		return rest
	}
	return func(ctx context.Context, now time.Time) train.Node {
		n := rest(ctx, now)
		n.Probes = l.prober.Addresses()
		return n
	}
}

// loops is the work.
func (l *links) loops() []func(context.Context) error {
	if l == nil {
		return nil
	}
	return []func(context.Context) error{
		l.prober.Run, l.report, l.trace,
		func(ctx context.Context) error { return l.nodes.Watch(ctx, l.seeNode, nil) },
		func(ctx context.Context) error {
			see := func(e bus.Entry[train.Pinglist], deleted bool) { l.seeList(ctx, e, deleted) }
			return l.lists.Watch(ctx, see, nil)
		},
	}
}

// seeNode keeps the addresses to which probes may go.
func (l *links) seeNode(e bus.Entry[train.Node], deleted bool) {
	var now []netip.AddrPort
	for _, text := range e.Value.Probes {
		if at, err := netip.ParseAddrPort(text); err == nil && !deleted {
			now = append(now, at)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Equal(l.answers[e.Key], now) {
		return
	}
	l.answers[e.Key] = now
	var all []netip.AddrPort
	for _, some := range l.answers {
		all = append(all, some...)
	}
	l.prober.Register(all)
	l.traceSoon() // the paths to a node that was not registered could not be found
}

// seeList takes up a new list for this node.
func (l *links) seeList(ctx context.Context, e bus.Entry[train.Pinglist], deleted bool) {
	if e.Key != string(l.node) {
		return
	}
	if deleted {
		e.Value = train.Pinglist{}
	}
	if err := l.prober.Use(ctx, e.Value, time.Now()); err != nil {
		l.log.Warn("some flows are not probed", "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	same := slices.EqualFunc(l.traced, e.Value.Trace, func(a, b train.Flow) bool { return a.ID() == b.ID() })
	if l.traced = e.Value.Trace; !same {
		l.traceSoon()
	}
}

func (l *links) traceSoon() {
	select {
	case l.retrace <- struct{}{}:
	default:
	}
}

// reportEvery is how often it is looked whether a slot is over.
const reportEvery = 500 * time.Millisecond

// report publishes what was counted, slot by slot.
func (l *links) report(ctx context.Context) error {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	wasLate := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		counts, over := l.prober.Report(time.Now())
		if !over {
			continue
		}
		late := len(counts.Late) > 0
		if late && !wasLate {
			l.log.Warn("probes of other nodes cannot be counted: the clocks differ", "late", counts.Late)
		}
		wasLate = late
		if counts.Stalled {
			l.log.Warn("the agent did not get to run: its probes are not counted", "slot", counts.Slot)
		}
		// A report that the bus does not take in time is of no use any more, and the next one must not wait for it.
		within, cancel := context.WithTimeout(ctx, train.ProbeSlot/2)
		err := l.bus.Publish(within, event.Fact{
			Subject: event.Subject{Entity: "probe", ID: string(l.node), Fact: event.FactCounted, Version: 1},
			Key:     fmt.Sprintf("node/%s/probes/%s/%d", l.node, l.session, counts.Slot),
			Body:    event.ProbesCounted(counts),
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			l.log.Warn("counts of probes are lost", "slot", counts.Slot, "error", err)
		}
	}
}

// trace finds paths when other ones are asked for, and now and then again.
func (l *links) trace(ctx context.Context) error {
	tick := time.NewTicker(l.traceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.retrace:
		case <-tick.C:
		}
		found, whole := l.prober.Trace(ctx)
		if !whole {
			continue
		}
		found.At = time.Now().UTC()
		_, err := l.paths.Modify(ctx, string(l.node), func(p *train.Paths) (bool, error) {
			found.KeepWhole(p.Paths)
			if slices.EqualFunc(p.Paths, found.Paths, train.Path.Same) {
				return false, nil
			}
			*p = found
			return true, nil
		})
		if err != nil && ctx.Err() == nil {
			l.log.Warn("paths are not told", "error", err)
		}
	}
}
