package netrole

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
)

// mostBody bounds a request.
const mostBody = 4 << 20

// controller hands out lists, and computes them again when pingers have found paths.
type controller struct {
	config Config
	log    *slog.Logger
	key    []byte

	mu    sync.Mutex
	paths map[train.NodeID]train.Paths
	// heard is when each server was last known to probe others: it asked for its list to do so, or told paths.
	heard map[train.NodeID]time.Time
	lists map[train.NodeID]train.Pinglist
	// unkept is set while the file of paths lacks some.
	unkept bool
}

// Controller serves until ctx ends; ready gets the address.
func Controller(ctx context.Context, c Config, log *slog.Logger, ready func(net.Addr)) error {
	s, err := newController(c, log)
	if err != nil {
		return err
	}
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(func(ctx context.Context) error { return run.ServeHTTP(ctx, c.Controller, s.handler(), ready) })
	work.Go(s.watch)
	return work.Wait()
}

// newController goes on with the key and the paths that are kept.
func newController(c Config, log *slog.Logger) (*controller, error) {
	s := &controller{config: c, log: log, heard: map[train.NodeID]time.Time{}}
	var errs [2]error
	s.key, errs[0] = keepKey(c.KeyFile)
	s.paths, errs[1] = readPaths(c.PathsFile, log)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for node := range s.paths {
		s.heard[node] = time.Now()
	}
	s.compute()
	return s, nil
}

// watch stops to count on pingers that are gone and keeps paths, until ctx ends.
func (s *controller) watch(ctx context.Context) error {
	for sleep(ctx, time.Second) {
		s.lapse(time.Now())
		s.keep()
	}
	s.keep()
	return nil
}

// keep writes the paths if the file lacks some. Where that fails, the next one tries again.
func (s *controller) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unkept {
		return
	}
	if err := keepPaths(s.config.PathsFile, s.paths); err != nil {
		s.log.Warn("paths are not kept", "error", err)
		return
	}
	s.unkept = false
}

// lapse drops the pingers that have not asked for three cycles. One that finds paths, as it does now and then, asks for nothing until it has them: it has as much
// longer as lies between two times.
func (s *controller) lapse(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := len(s.heard)
	maps.DeleteFunc(s.heard, func(_ train.NodeID, at time.Time) bool { return now.Sub(at) > 3*s.config.Cycle+traceEvery })
	if len(s.heard) < known {
		s.compute()
	}
}

// pingsQuery is how a server says that it asks for its list to probe others. Paths over which nobody does would cover links in the lists alone.
const pingsQuery = "pings"

func (s *controller) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pinglists", s.answer)
	mux.HandleFunc("GET /pinglists/{node}", s.answerOne)
	mux.HandleFunc("POST /paths", s.found)
	return mux
}

// compute makes the lists anew; those that are probed stay as far as they are of use.
func (s *controller) compute() {
	kept := map[uint32]bool{}
	for _, l := range s.lists {
		for _, f := range l.Probes {
			kept[f.ID()] = true
		}
	}
	pings := map[train.NodeID]bool{}
	for node := range s.heard {
		pings[node] = true
	}
	s.lists = pinglist.Make(s.config.nodes(), slices.Collect(maps.Values(s.paths)), kept, pinglist.Settings{
		Alpha: 3, Beta: 1, Peers: 16, Ports: 4, FirstPort: 28400, Classes: []int{0}, Pings: pings,
	}).Of
	for node, l := range s.lists {
		l.Key = s.key
		s.lists[node] = l
	}
}

func (s *controller) answer(w http.ResponseWriter, _ *http.Request) {
	answer(w, &s.mu, func() any { return s.lists })
}

func (s *controller) answerOne(w http.ResponseWriter, r *http.Request) {
	node := train.NodeID(r.PathValue("node"))
	if !s.knows(node) {
		http.Error(w, "no such server in the configuration", http.StatusNotFound)
		return
	}
	answer(w, &s.mu, func() any {
		if r.URL.Query().Has(pingsQuery) && s.hear(node) {
			s.compute()
		}
		return s.lists[node]
	})
}

// hear notes that a server probes others, and says whether that is news.
func (s *controller) hear(node train.NodeID) bool {
	_, known := s.heard[node]
	s.heard[node] = time.Now()
	return !known
}

func (s *controller) knows(node train.NodeID) bool {
	return slices.ContainsFunc(s.config.Servers, func(server netip.Addr) bool { return nodeOf(server) == node })
}

// answer writes what is found under a lock, but does not hold it for a client that is slow to read.
func answer(w http.ResponseWriter, mu *sync.Mutex, find func() any) {
	mu.Lock()
	text, err := json.Marshal(find())
	mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(text)
}

func (s *controller) found(w http.ResponseWriter, r *http.Request) {
	var p train.Paths
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody)).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !s.knows(p.Node) {
		http.Error(w, "no such server in the configuration", http.StatusNotFound)
		return
	}
	s.take(p)
}

// take enters the paths that a server has found.
func (s *controller) take(p train.Paths) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.paths[p.Node].Paths
	p.KeepWhole(before)
	same := slices.EqualFunc(before, p.Paths, train.Path.Same)
	if news := s.hear(p.Node); same && !news {
		return
	}
	s.paths[p.Node], s.unkept = p, true
	s.compute()
}
