package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/nodeagent/netprobe"
)

// traceEvery is how often the paths of probes are found again.
const traceEvery = 10 * time.Minute

// network are the settings of probes.
type network struct{ settings.Probes }

// validate checks that the probes fit into their budget.
func (n *network) validate() error {
	if err := n.prober().Check(); err != nil && len(n.Listen) > 0 {
		return fmt.Errorf("nodeagent.probe_budget_packets %d, nodeagent.probe_budget_bytes %d: %w", n.BudgetPackets, n.BudgetBytes, err)
	}
	return nil
}

// prober returns the configuration of the prober. The addresses were checked before.
func (n *network) prober() netprobe.Config {
	c := netprobe.Config{ProbesPerSecond: n.Rate, ProbeBytes: n.Bytes, PacketsPerSecond: n.BudgetPackets, BytesPerSecond: n.BudgetBytes}
	for _, text := range n.Listen {
		if at, err := netip.ParseAddrPort(text); err == nil {
			c.Listen = append(c.Listen, at)
		}
	}
	return c
}

// linkProber probes the network; nil if no network is probed.
type linkProber struct {
	node    train.NodeID
	prober  *netprobe.Prober
	bus     *bus.Bus
	nodes   *bus.KV[train.Node]
	lists   *bus.KV[train.Pinglist]
	paths   *bus.KV[train.Paths]
	retrace tick.Signal
	// session distinguishes the slots of this start of the agent from those of others.
	session string
	log     *slog.Logger

	mu      sync.Mutex
	answers map[string][]netip.AddrPort
	traced  []train.Flow
	// listed is the revision of the list in use.
	listed uint64
}

// open opens the sockets; it returns nil without addresses.
func (n *network) open(ctx context.Context, p run.Process, b *bus.Bus) (*linkProber, error) {
	if len(n.Listen) == 0 {
		return nil, nil //nolint:nilnil // an agent that does not probe is none, and its methods know
	}
	l := &linkProber{
		node: p.Common.NodeID(), bus: b, retrace: tick.NewSignal(), log: p.Log, answers: map[string][]netip.AddrPort{},
		session: strconv.FormatInt(time.Now().UnixNano(), 36),
	}
	err := errors.Join(
		bus.Open(ctx, b, contract.Nodes, &l.nodes), bus.Open(ctx, b, contract.Probes, &l.lists), bus.Open(ctx, b, contract.Paths, &l.paths),
	)
	if err != nil {
		return nil, err
	}
	config := n.prober()
	config.Node = l.node
	l.prober, err = netprobe.Open(ctx, config)
	return l, err
}

// addresses are where this node answers probes.
func (l *linkProber) addresses() []string {
	if l == nil {
		return nil
	}
	return l.prober.Addresses()
}

// loops returns the loops to run.
func (l *linkProber) loops() []func(context.Context) error {
	if l == nil {
		return nil
	}
	return []func(context.Context) error{
		l.prober.Run, l.report, l.trace,
		func(ctx context.Context) error { return l.nodes.Watch(ctx, l.onNode, nil) },
		func(ctx context.Context) error {
			see := func(e bus.Entry[train.Pinglist], deleted bool) { l.onList(ctx, e, deleted) }
			return l.lists.Watch(ctx, see, nil, string(l.node))
		},
	}
}

// onNode stores the addresses to which probes may go.
func (l *linkProber) onNode(e bus.Entry[train.Node], deleted bool) {
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
	l.retrace.Send() // the paths to a node that was not registered could not be found
}

// onList applies a new list for this node.
func (l *linkProber) onList(ctx context.Context, e bus.Entry[train.Pinglist], deleted bool) {
	l.mu.Lock()
	again := e.Revision == l.listed
	l.listed = e.Revision
	l.mu.Unlock()
	if again {
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
		l.retrace.Send()
	}
}

// reportInterval is how often the prober checks whether a slot is over.
const reportInterval = 500 * time.Millisecond

// report publishes the counts, slot by slot.
func (l *linkProber) report(ctx context.Context) error {
	wasLate := false
	for range tick.After(ctx, reportInterval) {
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
		// A report that the bus does not take in time is useless, and the next one must not wait for it.
		within, cancel := context.WithTimeout(ctx, train.ProbeSlot/2)
		err := l.bus.Publish(within, event.Fact{
			Subject: event.Subject{Entity: "probe", ID: string(l.node), Fact: event.FactCounted, Version: 1},
			Key:     fmt.Sprintf("node/%s/probes/%s/%d", l.node, l.session, counts.Slot),
			Body:    counts,
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			l.log.Warn("counts of probes are lost", "slot", counts.Slot, "error", err)
		}
	}
	return nil
}

// trace finds paths when other ones are asked for, and now and then again.
func (l *linkProber) trace(ctx context.Context) error {
	tick := time.NewTicker(traceEvery)
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
			l.log.Warn("paths are not stored", "error", err)
		}
	}
}
