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

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/fabric"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
)

const (
	// probesEvery is the interval at which changes of nodes or paths are looked for, probesAnew that at which lists
	// are computed without any change.
	probesEvery = 2 * time.Second
	probesAnew  = 10 * time.Minute
	keyBytes    = 32
	// smallNetwork is the number of nodes up to which pairs of links that lose packets at once are distinguished,
	// too.
	smallNetwork = 16
)

// firstPort is the first source port of probes.
const firstPort = 28_400

// probing is the configuration of probes.
func probing(c settings.Planner) pinglist.Settings {
	return pinglist.Settings{
		Alpha: c.ProbeCoverage, Peers: c.ProbePeers, Ports: c.ProbePorts, FirstPort: firstPort, Classes: []int{0}, RackLabel: c.RackLabel,
	}
}

// readTopology returns the names of links in the operator's file, or nil without a file.
func readTopology(path string) (*fabric.Names, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // names that are not there are none, and their methods know
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := fabric.Read(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for text := range t.Addresses {
		if a, err := netip.ParseAddr(text); err != nil || a.String() != text {
			return nil, fmt.Errorf("%s: address %q: want an IP address in its usual form, such as 10.2.0.1 or fd00::1", path, text)
		}
	}
	return t.Names(), nil
}

// prober keeps the lists of probes.
type prober struct {
	settings pinglist.Settings
	lists    *bus.KV[train.Pinglist]
	paths    *bus.KV[train.Paths]
	log      *slog.Logger
	// cache knows the nodes, and receives whose packets cross which link.
	cache *cache
	// key and kept are those of the last lists: they outlive a time in which no node was heard.
	key  []byte
	kept map[uint32]bool

	mu        sync.Mutex
	seenPaths map[string]train.Paths
	synced    bool
}

func newProber(ctx context.Context, b *bus.Bus, log *slog.Logger, s pinglist.Settings, known *cache) (*prober, error) {
	p := &prober{settings: s, log: log, cache: known, seenPaths: map[string]train.Paths{}}
	return p, errors.Join(bus.Open(ctx, b, contract.Probes, &p.lists), bus.Open(ctx, b, contract.Paths, &p.paths))
}

// run keeps the lists up to date until ctx ends.
func (p *prober) run(ctx context.Context) error {
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error {
		return p.paths.Watch(ctx, p.observePaths, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.synced = true
		})
	})
	work.Go(p.maintain)
	return work.Wait()
}

func (p *prober) observePaths(e bus.Entry[train.Paths], deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seenPaths[e.Key] = e.Value; deleted {
		delete(p.seenPaths, e.Key)
	}
}

// basis is the input of the lists.
type basis struct {
	nodes []train.Node
	paths []train.Paths
}

// basis returns the nodes that are alive, with only what counts, and the paths. It returns false until both have
// been seen.
func (p *prober) basis() (basis, bool) {
	nodes, seen := p.cache.probed()
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

// stored returns the lists in the bucket, and takes their key and flows; without a key it draws one.
func (p *prober) stored(ctx context.Context) (map[string]bus.Entry[train.Pinglist], error) {
	entries, err := p.lists.List(ctx)
	if err != nil {
		return nil, err
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
			return nil, fmt.Errorf("draw the key of probes: %w", err)
		}
	}
	return old, nil
}

// write stores the list of a node and reports whether it changed.
func (p *prober) write(ctx context.Context, node train.NodeID, list train.Pinglist) (changed bool, err error) {
	_, err = p.lists.Modify(ctx, string(node), func(stored *train.Pinglist) (bool, error) {
		changed = !reflect.DeepEqual(*stored, list)
		*stored = list
		return changed, nil
	})
	return changed, err
}

// publish computes the lists and writes those that have changed.
func (p *prober) publish(ctx context.Context, from basis) error {
	old, err := p.stored(ctx)
	if err != nil {
		return err
	}
	settings := p.settings
	if settings.Beta == 0 {
		if settings.Beta = 1; len(from.nodes) <= smallNetwork {
			settings.Beta = 2
		}
	}
	lists := pinglist.Make(from.nodes, from.paths, p.kept, settings)
	p.cache.observeCrossed(lists.Crossed)
	rows, changed := 0, 0
	for _, node := range slices.Sorted(maps.Keys(lists.Of)) {
		list := lists.Of[node]
		list.Key = p.key
		rows += len(list.Probes)
		wrote, err := p.write(ctx, node, list)
		if err != nil {
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
