package net

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// For IPv6 packets routers do not report the incoming interface, so links are logical.
func TestLossyLinksOfIPv6HostsAreNamed(t *testing.T) {
	c := startCluster(t, setup{at: inIPv6})
	c.silence()
	c.awaitLogicalPaths()
	seen := c.followTurns()
	all := links()
	// Links come by host: the outgoing one, then the incoming one.
	for _, run := range []struct {
		link
		part float64
		want string
	}{{all[0], 0.05, "from-host0"}, {all[5], 0.2, "to-host2"}, {all[2], 0.02, "from-host1"}} {
		c.lose(run.link, run.part)
		began := time.Now()
		var stated []string
		until(t, namedWithin, func() (bool, string) {
			stated = append(stated, slices.DeleteFunc(seen.take(), func(turn string) bool { return !strings.Contains(turn, event.FactDegraded) })...)
			return len(stated) > 0, fmt.Sprintf("%s is not named", run.want)
		})
		t.Logf("%s loses %g: %v after %v", run.want, run.part, stated, time.Since(began).Round(100*time.Millisecond))
		if len(stated) != 1 || !strings.HasPrefix(stated[0], run.want+" ") {
			t.Errorf("named %v, want %s", stated, run.want)
		}
		c.heal()
	}
}

// silence keeps routers from answering IPv6 packets with an exhausted hop limit.
func (c *cluster) silence() {
	c.t.Helper()
	if conn, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		c.t.Fatal("this machine has no IPv6")
	} else {
		_ = conn.Close()
	}
	var s strings.Builder
	for i := range leaves + spines {
		router := device("leaf", i)
		if i >= leaves {
			router = device("spine", i-leaves)
		}
		fmt.Fprintf(&s,
			"ip netns exec %s nft 'add table ip6 mute; add chain ip6 mute out { type filter hook output priority 0; }; add rule ip6 mute out icmpv6 type time-exceeded drop'\n",
			router)
	}
	if err := shell(s.String()); err != nil {
		c.t.Fatalf("routers cannot be kept silent without nft (Debian: apt-get install nftables): %v", err)
	}
}

// awaitLogicalPaths waits until the links out of all hosts and into them are on enough paths.
func (c *cluster) awaitLogicalPaths() {
	c.t.Helper()
	lists, err := bus.OpenKV[train.Pinglist](c.t.Context(), c.bus, contract.Probes)
	if err != nil {
		c.t.Fatal(err)
	}
	until(c.t, 2*time.Minute, func() (bool, string) {
		entries, err := lists.List(c.t.Context())
		covered := map[string]int{}
		for _, e := range entries {
			for _, f := range e.Value.Probes {
				for _, l := range f.Links {
					covered[l]++
				}
			}
		}
		for h := range hosts {
			for _, id := range []string{fmt.Sprintf("from-host%d", h), fmt.Sprintf("to-host%d", h)} {
				if covered[id] < 3 {
					return false, fmt.Sprintf("%s is on %d paths: %v", id, covered[id], err)
				}
			}
		}
		return true, ""
	})
}
