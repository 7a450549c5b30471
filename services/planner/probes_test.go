package planner

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
	"github.com/switchyard-dl/switchyard/services/planner/records"
)

func TestListsOfProbesFollowTheNodes(t *testing.T) {
	b := bustest.Connect(t, bustest.Start(t), "planner")
	nodes, err := bus.OpenKV[train.Node](t.Context(), b, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	// The clocks of nodes may be wrong by hours.
	announce := func(i int, probes ...string) {
		id := fmt.Sprintf("n%d", i)
		if _, err := nodes.Modify(t.Context(), id, func(n *train.Node) (bool, error) {
			*n = train.Node{ID: train.NodeID(id), Probes: probes, SeenAt: time.Now().Add(-time.Hour)}
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		announce(i, fmt.Sprintf("10.0.0.%d:7070", i+1))
	}
	known := newCache()
	p, err := newProber(t.Context(), b, slog.New(slog.DiscardHandler), pinglist.Settings{Alpha: 3, Peers: 16, Ports: 2, FirstPort: 28400, Classes: []int{0}}, known)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running conc.WaitGroup
	running.Go(func() { _ = p.run(ctx) })
	running.Go(func() {
		see := func(e bus.Entry[train.Node], deleted bool) { known.observeNode(time.Now(), e, deleted) }
		_ = nodes.Watch(ctx, see, known.complete(string(contract.Nodes)))
	})
	defer running.Wait()
	defer cancel()
	lists := awaitLists(t, p, 3)
	key := lists["n0"].Key
	for id, l := range lists {
		if len(l.Probes) == 0 || len(l.Trace) != 4 || len(key) != keyBytes || !bytes.Equal(l.Key, key) {
			t.Errorf("%s: %+v", id, l)
		}
	}
	listen := func(d time.Duration) {
		for now, end := time.Now(), time.Now().Add(d); now.Before(end); now = now.Add(listenEvery) {
			known.listen(now, true)
		}
	}
	listen(records.NodeLost + listenEvery) // nobody is heard
	awaitLists(t, p, 0)
	for i := range 3 {
		announce(i, fmt.Sprintf("10.0.0.%d:7070", i+1))
	}
	again := awaitLists(t, p, 3)
	for id, l := range again {
		if !bytes.Equal(l.Key, key) || !slices.EqualFunc(l.Probes, lists[id].Probes, func(a, b train.Flow) bool { return a.ID() == b.ID() }) {
			t.Errorf("%s, heard again: %+v, before %+v", id, l, lists[id])
		}
	}
	announce(2) // it answers no probes any more
	if lists = awaitLists(t, p, 2); !bytes.Equal(lists["n0"].Key, key) {
		t.Error("the key has changed")
	}
	known.observeLink(bus.Entry[train.Link]{Key: "to-n1", Value: train.Link{ID: "to-n1", Loss: 0.1, Degraded: true}}, false)
	s := known.state(time.Now(), train.Plan{}, false, plan.State{})
	if len(s.Links) != 1 || len(s.Links[0].From) != 1 || s.Links[0].From[0] != "n0" || s.Links[0].To[0] != "n1" {
		t.Errorf("decisions see %+v", s.Links)
	}
	known.observeLink(bus.Entry[train.Link]{Key: "to-n1", Value: train.Link{ID: "to-n1"}}, false)
	if s = known.state(time.Now(), train.Plan{}, false, plan.State{}); len(s.Links) != 0 {
		t.Errorf("decisions see %+v of a link that has recovered", s.Links)
	}
}

func TestDecisionsWaitForWhoCrossesALossyLink(t *testing.T) {
	known := newCache()
	for bucket := range maps.Clone(known.missing) {
		known.complete(bucket)()
	}
	link := bus.Entry[train.Link]{Key: "to-n1", Value: train.Link{ID: "to-n1", Loss: 0.1}}
	known.observeLink(link, false)
	if !known.ready() {
		t.Error("not ready though no link loses packets")
	}
	link.Value.Degraded = true
	known.observeLink(link, false)
	if known.ready() {
		t.Error("ready before it is known who crosses the link")
	}
	<-known.changed
	known.observeCrossed(map[string]pinglist.Crossing{})
	select {
	case <-known.changed:
	default:
		t.Error("no decision is asked for")
	}
	if !known.ready() {
		t.Error("not ready with lists that cross no link")
	}
}

// awaitLists waits until a number of nodes have lists.
func awaitLists(t *testing.T, p *prober, nodes int) map[string]train.Pinglist {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		found := map[string]train.Pinglist{}
		entries, err := p.lists.List(t.Context())
		for _, e := range entries {
			found[e.Key] = e.Value
		}
		if err == nil && len(found) == nodes {
			return found
		}
		select {
		case <-deadline:
			t.Fatalf("lists: %v, %v", found, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestTheTopologyIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"nodes: [{name: a, rack: r}, {name: b, rack: r}]\naddresses: {r: [10.0.0.1, 'fd00::1']}": "",
		"nodes: [{name: a, rack: r}]\naddresses: {r: ['10.0.0.01']}":                             "want an IP address",
		"nodes: [{name: a}]": "has no rack",
	} {
		path := filepath.Join(t.TempDir(), "yard.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		switch names, err := readTopology(path); {
		case want == "" && (err != nil || names == nil):
			t.Errorf("%q: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
	if _, err := readTopology("no-such-file"); err == nil {
		t.Error("a file that is not there was read")
	}
}
