package netrole

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
)

// mostBody bounds a request.
const mostBody = 4 << 20

// controller hands out lists, and makes them again when pingers join, leave or find paths.
type controller struct {
	config Config
	log    *slog.Logger
	key    []byte
	// servers are those of the configuration, by name.
	servers map[train.NodeID]bool

	mu    sync.Mutex
	paths map[train.NodeID]train.Paths
	// heard is the last sign that a server probes others: it asked for its list, or reported paths.
	heard map[train.NodeID]time.Time
	// lists are replaced and never changed. pings are the servers that the lists count on.
	lists map[train.NodeID]train.Pinglist
	pings map[train.NodeID]bool
	// changed is set while lists are due to be made, unkept while the file of paths lacks some.
	changed, unkept bool
}

// Controller serves until ctx ends. It calls ready with its address.
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

// newController continues with the stored key and paths.
func newController(c Config, log *slog.Logger) (*controller, error) {
	s := &controller{config: c, log: log, changed: true, heard: map[train.NodeID]time.Time{}, servers: c.names()}
	var errs [2]error
	s.key, errs[0] = keepKey(c.KeyFile)
	s.paths, errs[1] = readPaths(c.PathsFile, log)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for node := range s.paths {
		s.heard[node] = time.Now()
	}
	s.refresh(time.Now())
	return s, nil
}

// watch updates the lists and the file of paths until ctx ends. It does so once a second for all requests of that
// second: if a thousand pingers start together, each would otherwise wait for the lists of those before it.
func (s *controller) watch(ctx context.Context) error {
	said := ""
	for goes := true; goes; {
		if goes = tick.Pause(ctx, time.Second); goes {
			s.refresh(time.Now())
		}
		trouble := ""
		if err := s.keep(); err != nil {
			trouble = err.Error()
		}
		if trouble != "" && trouble != said {
			s.log.Warn("paths are not kept", "error", trouble)
		}
		said = trouble
	}
	return nil
}

// keep writes the paths if the file lacks some. If that fails, the next call tries again.
func (s *controller) keep() error {
	s.mu.Lock()
	unkept, paths := s.unkept, maps.Clone(s.paths)
	s.unkept = false
	s.mu.Unlock()
	if !unkept {
		return nil
	}
	err := keepPaths(s.config.PathsFile, paths)
	if err != nil {
		s.mu.Lock()
		s.unkept = true
		s.mu.Unlock()
	}
	return err
}

// refresh makes the lists again if servers have joined, left or reported other paths. A pinger that has not asked for
// three cycles has left. While a pinger looks for paths it does not ask, so that it gets the time between two such
// searches in addition.
func (s *controller) refresh(now time.Time) {
	s.mu.Lock()
	known := len(s.heard)
	maps.DeleteFunc(s.heard, func(_ train.NodeID, at time.Time) bool { return now.Sub(at) > 3*s.config.Cycle+traceEvery })
	changed := s.changed || len(s.heard) < known
	s.changed = false
	pings := map[train.NodeID]bool{}
	for node := range s.heard {
		pings[node] = true
	}
	before, paths := s.lists, slices.Collect(maps.Values(s.paths))
	s.mu.Unlock()
	if !changed {
		return
	}
	lists := s.compute(before, paths, pings)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists, s.pings = lists, pings
}

// pingsQuery marks a request of a server that will probe the paths of its list. Paths that no server probes would
// cover links only on paper.
const pingsQuery = "pings"

func (s *controller) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /config", s.answerConfig)
	mux.HandleFunc("GET /pinglists", s.answer)
	mux.HandleFunc("GET /pinglists/{node}", s.answerOne)
	mux.HandleFunc("POST /paths", s.found)
	return mux
}

// compute makes lists. It keeps probed paths of the lists before as far as they are useful.
func (s *controller) compute(before map[train.NodeID]train.Pinglist, paths []train.Paths, pings map[train.NodeID]bool) map[train.NodeID]train.Pinglist {
	kept := map[uint32]bool{}
	for _, l := range before {
		for _, f := range l.Probes {
			kept[f.ID()] = true
		}
	}
	lists := pinglist.Make(s.config.nodes(), paths, kept, pinglist.Settings{
		Alpha: 3, Beta: 1, Peers: 16, Ports: 4, FirstPort: 28400, Classes: []int{0}, Pings: pings,
	}).Of
	for node, l := range lists {
		l.Key = s.key
		lists[node] = l
	}
	return lists
}

// answerConfig serves what the other roles need to know, so that they need no copy of the file.
func (s *controller) answerConfig(w http.ResponseWriter, _ *http.Request) {
	answer(w, &s.mu, func() any { return s.config })
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
	if r.URL.Query().Has(pingsQuery) && !s.asks(node) {
		http.Error(w, "lists that count on this pinger are being made", http.StatusServiceUnavailable)
		return
	}
	answer(w, &s.mu, func() any { return s.lists[node] })
}

// asks notes that a pinger has asked. It reports whether the lists already count on it.
func (s *controller) asks(node train.NodeID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(node)
	return s.pings[node]
}

// hear notes that a server probes others.
func (s *controller) hear(node train.NodeID) {
	if _, known := s.heard[node]; !known {
		s.changed = true
	}
	s.heard[node] = time.Now()
}

func (s *controller) knows(node train.NodeID) bool { return s.servers[node] }

// answer writes the value that find returns under the lock. The value must not change afterwards: answer holds the
// lock neither while it encodes nor while a slow client reads.
func answer(w http.ResponseWriter, mu *sync.Mutex, find func() any) {
	mu.Lock()
	found := find()
	mu.Unlock()
	text, err := json.Marshal(found)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(text)
}

func refuseStranger(w http.ResponseWriter) {
	http.Error(w, "no such server in the configuration", http.StatusNotFound)
}

func (s *controller) found(w http.ResponseWriter, r *http.Request) {
	var p train.Paths
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody)).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !s.knows(p.Node) {
		refuseStranger(w)
		return
	}
	s.take(p)
}

// take stores the paths that a server has found.
func (s *controller) take(p train.Paths) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.paths[p.Node].Paths
	p.KeepWhole(before)
	s.hear(p.Node)
	if !slices.EqualFunc(before, p.Paths, train.Path.Same) {
		s.paths[p.Node], s.changed, s.unkept = p, true, true
	}
}
