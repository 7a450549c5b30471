package web

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// probed has four nodes on two leaves probe each other over two spines; one link is lossy, one slow, one has recovered.
func probed() (lists map[string]train.Pinglist, links []train.Link) {
	leaf := map[string]string{"a": "l1", "b": "l1", "c": "l2", "d": "l2"}
	lists = map[string]train.Pinglist{}
	for from := range leaf {
		list := train.Pinglist{Key: []byte("a-secret-key")}
		for to := range leaf {
			for _, spine := range []string{"s1", "s2"} {
				way := []string{from + "=3E" + leaf[from], leaf[from] + "=3E" + spine, spine + "=3E" + leaf[to], leaf[to] + "=3E" + to}
				if from == to {
					continue
				}
				if leaf[from] == leaf[to] {
					way = []string{way[0], way[3]}
				}
				list.Probes = append(list.Probes, train.Flow{From: train.NodeID(from), To: train.NodeID(to), Links: way})
			}
		}
		lists[from] = list
	}
	since := time.Now().Add(-time.Minute)
	return lists, []train.Link{
		{ID: "l1=3Es1", Kind: train.LinkLoses, Loss: 0.07, Confidence: 1, Degraded: true, Since: since},
		{ID: "l2=3Ed", Kind: train.LinkIsSlow, DelaySeconds: 0.012, Confidence: 0.9, Degraded: true, Since: since},
		{ID: "s2=3El2", Kind: train.LinkIsSlow, DelaySeconds: 0.003, Since: since},
	}
}

// bus connects as the operator.
func (y *yard) bus() *bus.Bus {
	y.t.Helper()
	var at struct{ NATS, Keys string }
	text, err := os.ReadFile(filepath.Join(y.dir, "context.json"))
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil {
		y.t.Fatal(err)
	}
	b, err := bus.Connect(y.ctx, bus.Config{URL: at.NATS, Keys: at.Keys, Name: "cli"})
	if err != nil {
		y.t.Fatal(err)
	}
	y.t.Cleanup(b.Close)
	return b
}

// probes writes the probes and the bad links until the page shows them: a planner that has just started removes lists
// that are not its own.
func (y *yard) probes(b *bus.Bus) {
	y.t.Helper()
	lists, links := probed()
	for _, l := range links {
		put(y.t, b, contract.Links, l.ID, l)
	}
	y.until("the paths are seen", func() bool {
		for node, list := range lists {
			put(y.t, b, contract.Probes, node, list)
		}
		return strings.Contains(y.text(), "4 nodes probe")
	})
}

// Bad links stand out in the drawing and in words, and the key of the probes stays where it is.
func TestTheNetworkPage(t *testing.T) {
	y := newYard(t)
	y.open(y.command("open"))
	y.at("#/network")
	y.probes(y.bus())
	y.shows("l1=3Es1", "lossy", "7.00 %", "slow", "12.0 ms", "recovered", "No job waits or has moved", "loses packets")
}
