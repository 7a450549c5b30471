// Package horovod serves the rendezvous at which Horovod's processes meet.
package horovod

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc"
)

// Server is the rendezvous that horovodrun serves to the processes it starts (horovod.runner.http.http_server): a
// store of scopes, GET and PUT of /scope/key. Each process meets the others in the scopes global, local and cross, and
// deletes its rank from a scope once it is connected. The last one empties the scope, so that they can meet again.
type Server struct {
	workers  int
	server   http.Server
	serving  conc.WaitGroup
	mu       sync.Mutex
	values   map[string]map[string][]byte
	finished map[string]int
}

// Serve serves on a port of this machine until Close; it returns nil for port 0.
func Serve(port, workers int) (*Server, error) {
	if port == 0 {
		return nil, nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // nothing is waited for
	if err != nil {
		return nil, fmt.Errorf("serve the rendezvous of Horovod: %w", err)
	}
	h := &Server{workers: workers, values: map[string]map[string][]byte{}, finished: map[string]int{}}
	h.server = http.Server{Handler: h, ReadHeaderTimeout: timeout, ReadTimeout: timeout, ConnContext: withPeer}
	h.serving.Go(func() { _ = h.server.Serve(listener) })
	return h, nil
}

// Limits of a request and of the store. A value is the address of a process, a few hundred bytes.
const (
	timeout    = 10 * time.Second
	valueSize  = 1 << 20
	mostValues = 1 << 16
)

// Close ends the rendezvous; it does nothing if there is none.
func (h *Server) Close() {
	if h != nil {
		_ = h.server.Close()
		h.serving.Wait()
	}
}

func (h *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !mayMeet(r.Context()) {
		http.Error(w, "this rendezvous is for the processes of one job", http.StatusForbidden)
		return
	}
	scope, key, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if !found {
		http.Error(w, "want /scope/key", http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, valueSize))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch r.Method {
	case http.MethodGet:
		value, found := h.values[scope][key]
		if !found {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write(value)
	case http.MethodPut:
		if h.values[scope] == nil {
			h.values[scope] = map[string][]byte{}
		}
		if len(h.values)+len(h.values[scope]) > mostValues {
			http.Error(w, "there is no room for more values", http.StatusInsufficientStorage)
			return
		}
		h.values[scope][key] = body
	case http.MethodDelete:
		h.finish(scope, key)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// finish notes that a process has left a scope. The scopes of subsets of the processes belong to those who made them.
func (h *Server) finish(scope, key string) {
	members := 0
	switch {
	case strings.HasPrefix(scope, "global"), strings.HasPrefix(scope, "local"):
		members = h.workers
	case strings.HasPrefix(scope, "cross"):
		members = 1
	default:
		delete(h.values[scope], key)
		return
	}
	if h.finished[scope]++; h.finished[scope] >= members {
		delete(h.values, scope)
		delete(h.finished, scope)
	}
}
