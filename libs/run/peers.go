package run

import (
	"context"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// maxHeaders bounds the headers of a request.
const maxHeaders = 64 << 10

// ServePeers is ServeListener for a listener that strangers reach: each may have a number of connections at once, and
// further ones are closed. The owner of this process, and root, may have any number.
func ServePeers(ctx context.Context, listener net.Listener, h http.Handler, most int) error {
	s := newServer(h)
	s.MaxHeaderBytes = maxHeaders
	s.ConnState = (&peers{most: most, open: map[string]int{}, of: map[net.Conn]string{}}).observe
	return serveHTTP(ctx, s, listener)
}

// AnswerWithin bounds the time that a peer may take to read an answer or, called again, the next part of a stream.
func AnswerWithin(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d)) // what cannot have one is no connection
}

// TransferWithin bounds the time that a peer may take to send a large body and to read the answer.
func TransferWithin(w http.ResponseWriter, d time.Duration) {
	c, end := http.NewResponseController(w), time.Now().Add(d)
	_ = c.SetReadDeadline(end) // what cannot have one is no connection
	_ = c.SetWriteDeadline(end)
}

// peers counts the connections of each peer.
type peers struct {
	most int
	mu   sync.Mutex
	open map[string]int
	of   map[net.Conn]string
}

// observe follows the state of a connection. The server calls it for a new one before it reads anything.
func (p *peers) observe(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state { //nolint:exhaustive // the connection stays
	case http.StateNew:
		name, bounded := peerOf(c)
		if !bounded {
			return
		}
		p.of[c] = name
		if p.open[name]++; p.open[name] > p.most {
			_ = c.Close() // the server then reports it as closed
		}
	case http.StateClosed, http.StateHijacked:
		name, known := p.of[c]
		if !known {
			return
		}
		delete(p.of, c)
		if p.open[name]--; p.open[name] == 0 {
			delete(p.open, name)
		}
	}
}

// peerOf names who is connected: a user of the machine, or an address. bounded is false for the owner and root.
func peerOf(c net.Conn) (name string, bounded bool) {
	if uid, err := Peer(withConn(context.Background(), c)); err == nil {
		return "user " + strconv.Itoa(uid), uid != 0 && uid != os.Geteuid()
	}
	address := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	return address, true
}
