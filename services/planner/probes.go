package planner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
)

const (
	// probesEvery is how often it is looked whether nodes or paths have changed, probesAnew how often lists are computed although nothing has.
	probesEvery = 2 * time.Second
	probesAnew  = 10 * time.Minute
	keyBytes    = 32
	// smallNetwork is the number of nodes up to which pairs of links that lose at once are told apart, too.
	smallNetwork = 16
)

// probing is what the operator chose.
type probing struct {
	pinglist.Settings
	// topology is the file of the network, empty for none.
	topology string
}

func (p *probing) flags(fs *pflag.FlagSet) {
	fs.IntVar(&p.Alpha, "probe-coverage", 3, "how many probed paths cross each link of the network at least")
	fs.IntVar(&p.Beta, "probe-identify", 0, "how many links that lose packets at once are told from all others, 1 to 3 (0: 2 on up to 16 nodes, else 1)")
	fs.IntVar(&p.Peers, "probe-peers", 16, "how many other nodes a node probes at most")
	fs.IntVar(&p.Ports, "probe-ports", 4, "how many source ports are tried towards each: switches choose among equal paths by them")
	fs.IntVar(&p.FirstPort, "probe-first-port", 28400, "the first of these ports")
	fs.IntSliceVar(&p.Classes, "probe-classes", []int{0}, "DSCP values of probes, which the source ports take in turn")
	fs.StringVar(&p.topology, "topology", "", "file of the network, in the form that switchyard net plan reads: links then have its names (empty: they are named by addresses)")
	fs.StringVar(&p.RackLabel, "rack-label", "switchyard.dev/rack", "label of nodes that names their rack, for networks whose switches do not answer")
}

func (p *probing) validate() error {
	inside := func(flag string, value, least, most int) error {
		if value < least || value > most {
			return fmt.Errorf("--%s %d: want %d to %d", flag, value, least, most)
		}
		return nil
	}
	const mostPort, mostPorts, mostPeers, mostClass = 65_000, 64, 1024, 63
	errs := []error{
		inside("probe-coverage", p.Alpha, 1, 100), inside("probe-identify", p.Beta, 0, 3), inside("probe-peers", p.Peers, 1, mostPeers),
		inside("probe-ports", p.Ports, 1, mostPorts), inside("probe-first-port", p.FirstPort, 1, mostPort),
	}
	if err := p.readTopology(); err != nil {
		errs = append(errs, fmt.Errorf("--topology: %w", err))
	}
	if len(p.Classes) == 0 {
		errs = append(errs, errors.New("--probe-classes: want at least one"))
	}
	for _, c := range p.Classes {
		errs = append(errs, inside("probe-classes", c, 0, mostClass))
	}
	return errors.Join(errs...)
}

// readTopology takes up the names of links from the operator's file.
func (p *probing) readTopology() error {
	if p.topology == "" {
		return nil
	}
	text, err := os.ReadFile(p.topology)
	if err != nil {
		return err
	}
	t, err := fabric.Read(text)
	if err != nil {
		return fmt.Errorf("%s: %w", p.topology, err)
	}
	for text := range t.Addresses {
		if a, err := netip.ParseAddr(text); err != nil || a.String() != text {
			return fmt.Errorf("%s: address %q: want an IP address in its usual form, such as 10.2.0.1 or fd00::1", p.topology, text)
		}
	}
	p.Network = t.Names()
	return nil
}

// prober keeps the lists of probes.
type prober struct {
	settings pinglist.Settings
	lists    *bus.KV[train.Pinglist]
	paths    *bus.KV[train.Paths]
	log      *slog.Logger
	// look knows the nodes, and is told whose packets cross which link.
	look *picture
	// key and kept are those of the last lists that there were: they outlive a time in which no node was heard.
	key  []byte
	kept map[uint32]bool

	mu        sync.Mutex
	seenPaths map[string]train.Paths
	synced    bool
}

func newProber(ctx context.Context, b *bus.Bus, log *slog.Logger, s pinglist.Settings, look *picture) (*prober, error) {
	p := &prober{settings: s, log: log, look: look, seenPaths: map[string]train.Paths{}}
	var errs [2]error
	p.lists, errs[0] = bus.OpenKV[train.Pinglist](ctx, b, event.BucketProbes)
	p.paths, errs[1] = bus.OpenKV[train.Paths](ctx, b, event.BucketPaths)
	return p, errors.Join(errs[:]...)
}

// run keeps the lists up to date until ctx ends.
func (p *prober) run(ctx context.Context) error {
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error {
		return p.paths.Watch(ctx, p.seePaths, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.synced = true
		})
	})
	work.Go(p.maintain)
	return work.Wait()
}

func (p *prober) seePaths(e bus.Entry[train.Paths], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seenPaths[e.Key] = e.Value; deleted {
		delete(p.seenPaths, e.Key)
	}
}

// basis is what lists are computed from.
type basis struct {
	nodes []train.Node
	paths []train.Paths
}

// basis gives the nodes that are alive, with no more than what counts, and the paths; false until both have been seen.
func (p *prober) basis() (basis, bool) {
	nodes, seen := p.look.probed()
	p.mu.Lock()
	defer p.mu.Unlock()
	b := basis{nodes: nodes}
	for _, key := range slices.Sorted(maps.Keys(p.seenPaths)) {
		b.paths = append(b.paths, p.seenPaths[key])
	}
	return b, seen && p.synced
}

func (p *prober) maintain(ctx context.Context) error {
	tick := time.NewTicker(probesEvery)
	defer tick.Stop()
	var last basis
	var computed time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, seen := p.basis()
		if !seen || reflect.DeepEqual(now, last) && time.Since(computed) < probesAnew {
			continue
		}
		if err := p.publish(ctx, now); err != nil {
			if ctx.Err() == nil {
				p.log.Warn("lists of probes are not told, the next round goes on", "error", err)
			}
			continue
		}
		last, computed = now, time.Now()
	}
}

// publish computes the lists and writes those that have changed.
func (p *prober) publish(ctx context.Context, from basis) error {
	entries, err := p.lists.List(ctx)
	if err != nil {
		return err
	}
	old := map[string]bus.Entry[train.Pinglist]{}
	if len(entries) > 0 {
		p.kept = map[uint32]bool{}
	}
	for _, e := range entries {
		old[e.Key], p.key = e, e.Value.Key
		for _, f := range e.Value.Probes {
			p.kept[f.ID()] = true
		}
	}
	if len(p.key) == 0 {
		p.key = make([]byte, keyBytes)
		if _, err := rand.Read(p.key); err != nil {
			return fmt.Errorf("draw the key of probes: %w", err)
		}
	}
	settings := p.settings
	if settings.Beta == 0 {
		if settings.Beta = 1; len(from.nodes) <= smallNetwork {
			settings.Beta = 2
		}
	}
	lists := pinglist.Make(from.nodes, from.paths, p.kept, settings)
	p.look.seeCrossed(lists.Crossed)
	rows, changed := 0, 0
	for _, node := range slices.Sorted(maps.Keys(lists.Of)) {
		list := lists.Of[node]
		list.Key = p.key
		rows += len(list.Probes)
		wrote := false
		if _, err := p.lists.Modify(ctx, string(node), func(l *train.Pinglist) (bool, error) {
			wrote = !reflect.DeepEqual(*l, list)
			*l = list
			return wrote, nil
		}); err != nil {
			return err
		}
		if wrote {
			changed++
		}
		delete(old, string(node))
	}
	for _, e := range old {
		if err := p.lists.Delete(ctx, e.Key, e.Revision); err != nil {
			return err
		}
	}
	if changed > 0 || len(old) > 0 {
		p.log.Info("lists of probes", "nodes", len(lists.Of), "links", len(lists.Crossed), "flows", rows, "changed", changed)
	}
	return nil
}
