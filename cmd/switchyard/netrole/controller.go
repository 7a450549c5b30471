package netrole

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/pinglist"
)

// mostBody bounds a request.
const mostBody = 4 << 20

// controller hands out lists, and computes them again when pingers have found paths.
type controller struct {
	config Config
	key    []byte

	mu    sync.Mutex
	paths map[train.NodeID]train.Paths
	lists map[train.NodeID]train.Pinglist
}

// Controller serves until ctx ends; ready gets the address.
func Controller(ctx context.Context, c Config, ready func(net.Addr)) error {
	key, err := keepKey(c.KeyFile)
	if err != nil {
		return err
	}
	s := &controller{config: c, key: key, paths: map[train.NodeID]train.Paths{}}
	s.compute()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pinglists", s.answer)
	mux.HandleFunc("GET /pinglists/{node}", s.answerOne)
	mux.HandleFunc("POST /paths", s.found)
	return run.ServeHTTP(ctx, c.Controller, mux, ready)
}

const keyBytes = 32

// keepKey reads the key of probes, and draws it where there is none yet. It outlives the controller: with a new one, servers that do not have it yet would drop the
// probes of others, and the network would look lossy.
func keepKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	switch {
	case err == nil && len(key) != keyBytes:
		return nil, fmt.Errorf("read the key of probes %s: want %d bytes, found %d", path, keyBytes, len(key))
	case err == nil:
		return key, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read the key of probes: %w", err)
	}
	key = make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("draw the key of probes: %w", err)
	}
	if err := os.WriteFile(path+".new", key, 0o600); err != nil {
		return nil, fmt.Errorf("keep the key of probes: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, fmt.Errorf("keep the key of probes: %w", err)
	}
	return key, nil
}

// compute makes the lists anew; those that are probed stay as far as they are of use.
func (s *controller) compute() {
	kept := map[uint32]bool{}
	for _, l := range s.lists {
		for _, f := range l.Probes {
			kept[f.ID()] = true
		}
	}
	var paths []train.Paths
	for _, p := range s.paths {
		paths = append(paths, p)
	}
	s.lists = pinglist.Make(s.config.nodes(), paths, kept, pinglist.Settings{
		Alpha: 3, Beta: 1, Peers: 16, Ports: 4, FirstPort: 28400, Classes: []int{0},
	}).Of
	for node, l := range s.lists {
		l.Key = s.key
		s.lists[node] = l
	}
}

func (s *controller) answer(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(s.lists)
}

func (s *controller) answerOne(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, known := s.lists[train.NodeID(r.PathValue("node"))]
	if !known {
		http.Error(w, "no such server in the configuration", http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (s *controller) found(w http.ResponseWriter, r *http.Request) {
	var p train.Paths
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody)).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.lists[p.Node]; !known {
		http.Error(w, "no such server in the configuration", http.StatusNotFound)
		return
	}
	s.paths[p.Node] = p
	s.compute()
}
