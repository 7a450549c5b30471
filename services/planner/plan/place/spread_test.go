package place

import (
	"fmt"
	"math"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan/cluster"
	"github.com/switchyard-dl/switchyard/services/planner/plan/state"
)

// part is a number of workers and servers of one node.
type part struct{ workers, servers int }

// transfer is the time of one exchange of gradients by Optimus's model (section 4.2), in units of model size over
// bandwidth: a server exchanges its share with every worker on another node, a worker with every server there, each
// over one link.
func transfer(parts []part) float64 {
	all := part{}
	for _, p := range parts {
		all = part{all.workers + p.workers, all.servers + p.servers}
	}
	slowest := 0.0
	for _, p := range parts {
		if p.servers > 0 {
			slowest = math.Max(slowest, float64(all.workers-p.workers)/float64(all.servers))
		}
		if p.workers > 0 {
			slowest = math.Max(slowest, float64(all.servers-p.servers)/float64(all.servers))
		}
	}
	return slowest
}

// fastest is the least transfer time of all the ways to put workers and servers on nodes with the given devices and
// cores. A node has workers and servers, or nothing.
func fastest(left part, nodes, devices, cores int, parts []part) float64 {
	if nodes == 0 {
		if left != (part{}) {
			return math.Inf(1)
		}
		return transfer(parts)
	}
	best := math.Inf(1)
	for w := 0; w <= min(left.workers, devices); w++ {
		for p := 0; p <= min(left.servers, cores); p++ {
			if (w > 0) != (p > 0) {
				continue
			}
			best = min(best, fastest(part{left.workers - w, left.servers - p}, nodes-1, devices, cores, append(parts, part{w, p})))
		}
	}
	return best
}

// TestSpreadIsAsFastAsAnyPlacement compares the theorem with all placements that it speaks of, wherever it gives equal
// parts.
func TestSpreadIsAsFastAsAnyPlacement(t *testing.T) {
	compared := 0
	for _, size := range []struct{ devices, cores int }{{2, 2}, {3, 2}, {4, 4}} {
		for w := 1; w <= 8; w++ {
			for p := 1; p <= 4; p++ {
				s := state.State{}
				for i := range 4 {
					n := train.Node{ID: train.NodeID(fmt.Sprint("n", i)), Cores: size.cores}
					for d := range size.devices {
						n.Devices = append(n.Devices, train.Device{ID: train.DeviceID(fmt.Sprint("gpu:", d))})
					}
					s.Nodes = append(s.Nodes, n)
				}
				s.Jobs = []state.Job{{ID: "x", Spec: train.Spec{Strategy: train.StrategyParameterServer, MaxDevices: w, ParameterServers: &train.ServersSpec{Max: p}}}}
				all := cluster.New(&s, func(*state.Job, train.Spec) (int, int) { return 1, w })
				placed, found := NewFinder(all).evenly(all.Gangs[0], []int{0, 1, 2, 3}, w, p, all.Ledger.Free)
				best := fastest(part{w, p}, 4, size.devices, size.cores, nil)
				if !found {
					if !math.IsInf(best, 1) && w%4 == 0 && p%4 == 0 {
						t.Errorf("%d workers and %d servers find no place on nodes of %+v", w, p, size)
					}
					continue
				}
				var parts []part
				for _, b := range placed.Parts {
					parts = append(parts, part{b.Count, b.Servers})
				}
				if k := len(parts); w%k != 0 || p%k != 0 {
					continue
				}
				compared++
				if got := transfer(parts); got > best+1e-9 {
					t.Errorf("%d workers and %d servers on nodes of %+v: %v takes %.3f, the best placement %.3f", w, p, size, parts, got, best)
				}
			}
		}
	}
	if compared < 20 {
		t.Errorf("only %d placements compared", compared)
	}
}
