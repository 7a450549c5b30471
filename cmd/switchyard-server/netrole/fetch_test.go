package netrole

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// A role waits for its controller, runs with what that serves, and begins again when the controller has another file.
func TestARoleFollowsItsController(t *testing.T) {
	var served atomic.Pointer[Config]
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if c := served.Load(); c != nil {
			_ = json.NewEncoder(w).Encode(c)
			return
		}
		http.Error(w, "still starting", http.StatusServiceUnavailable)
	}))
	defer controller.Close()
	at := controller.Listener.Addr().String()
	first := Config{
		Controller: "10.0.0.9:1", Diagnoser: "10.0.0.9:2", ResponderPort: 7070, PingerPort: 7071, Interval: time.Second, Cycle: 10 * time.Millisecond,
		Servers: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.255.255.254")}, KeyFile: "secret",
	}
	ran := make(chan Config)
	ctx, cancel := context.WithCancel(t.Context())
	var running conc.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		_ = Follow(ctx, at, slog.New(slog.DiscardHandler), func(ctx context.Context, c Config) error {
			select {
			case ran <- c:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return nil
		})
	})
	served.Store(&first)
	got := <-ran
	if got.Controller != at || got.Diagnoser != first.Diagnoser || len(got.Servers) != 2 || got.Cycle != first.Cycle || got.KeyFile != "" {
		t.Errorf("%+v", got)
	}
	if own, err := got.OwnServer(); err != nil || own != first.Servers[0] {
		t.Errorf("own server %s, error %v", own, err)
	}
	second := first
	second.ResponderPort = 7171
	served.Store(&second)
	if got := <-ran; got.ResponderPort != 7171 {
		t.Errorf("%+v", got)
	}
	if _, err := (&Config{}).OwnServer(); err == nil {
		t.Error("a machine that is no server is one")
	}
}

// Every server of a leaf and spine network has a pinger: the controller makes lists when all have joined, and again
// when each has found its paths; then each asks for its list, and the diagnoser for all.
func BenchmarkAThousandServers(b *testing.B) {
	const leaves, perLeaf = 32, 32
	c := Config{ResponderPort: 7070, Cycle: time.Minute}
	for i := range leaves {
		for k := range perLeaf {
			c.Servers = append(c.Servers, netip.AddrFrom4([4]byte{10, byte(i), 0, byte(1 + k)}))
		}
	}
	var joined, made, one, all time.Duration
	size, probes, rows := 0, 0, 0
	for b.Loop() {
		s := thousand(b, c)
		joined += took(func() { s.refresh(time.Now()) })
		s.tracePaths(leaves / 4)
		made += took(func() { s.refresh(time.Now()) })
		one += took(func() {
			for _, server := range c.Servers {
				s.handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/pinglists/"+string(nodeOf(server))+"?pings", nil))
			}
		})
		w := httptest.NewRecorder()
		all += took(func() {
			s.handler().ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/pinglists", nil))
		})
		size, probes = w.Body.Len(), 0
		links := map[string]bool{}
		for _, l := range s.lists {
			probes += len(l.Probes)
			for _, f := range l.Probes {
				for _, link := range f.Links {
					links[link] = true
				}
			}
		}
		rows = len(links)
	}
	n := float64(b.N)
	b.ReportMetric(joined.Seconds()/n, "s_to_join")
	b.ReportMetric(made.Seconds()/n, "s_to_make_lists")
	b.ReportMetric(one.Seconds()*1000/n/float64(len(c.Servers)), "ms_a_list")
	b.ReportMetric(all.Seconds()*1000/n, "ms_all_lists")
	b.ReportMetric(float64(size)/1e6, "MB_all_lists")
	b.ReportMetric(float64(probes)/float64(len(c.Servers)), "flows_a_server")
	b.ReportMetric(float64(rows), "links")
}

func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// thousand is a controller whose servers have all just asked.
func thousand(b *testing.B, c Config) *controller {
	b.Helper()
	dir := b.TempDir()
	c.KeyFile, c.PathsFile = filepath.Join(dir, "key"), filepath.Join(dir, "paths")
	s, err := newController(c, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	for _, server := range c.Servers {
		s.asks(nodeOf(server))
	}
	return s
}

// tracePaths has every server find the paths of its flows. Switches choose the spine by the flow.
func (s *controller) tracePaths(spines int) {
	octet := func(n train.NodeID, i int) string { return strings.Split(string(n), "-")[i] }
	for node, list := range s.lists {
		found := train.Paths{Node: node}
		for _, f := range list.Trace {
			from, to, spine := octet(f.From, 1), octet(f.To, 1), int(f.ID())%spines
			hops := []string{fmt.Sprintf("10.%s.255.%s", from, octet(f.From, 3))}
			if from != to {
				hops = append(hops, fmt.Sprintf("10.200.%d.%s", spine, from), fmt.Sprintf("10.%s.254.%d", to, spine))
			}
			found.Paths = append(found.Paths, train.Path{Flow: f, Hops: hops, Complete: true})
		}
		s.take(found)
	}
}
