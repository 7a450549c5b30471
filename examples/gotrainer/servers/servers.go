// Package servers sums vectors over the workers of a job by parameter servers. Each server has a part of every vector:
// it waits for that part from all workers, sums in the order of their ranks, and returns the sum, one step after the
// other. A lost worker or server ends the operation with ring.ErrPeerLost.
package servers

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/ring"
)

// hello is a worker's first message. The session must be the same for all of them.
type hello struct {
	Session     string
	Rank, World int
}

// message is a part of a vector, or rank 0's broadcast.
type message struct {
	Numbers []float64
	Bytes   []byte
}

// peer is a connection that exchanges messages. Each exchange must end within the timeout, if there is one.
type peer struct {
	net.Conn
	encoder *gob.Encoder
	decoder *gob.Decoder
	timeout time.Duration
}

func newPeer(c net.Conn, timeout time.Duration) *peer {
	return &peer{c, gob.NewEncoder(c), gob.NewDecoder(c), timeout}
}

func (p *peer) send(v any) error {
	if err := p.hurry(); err != nil {
		return err
	}
	return p.encoder.Encode(v)
}

func (p *peer) receive(v any) error {
	if err := p.hurry(); err != nil {
		return err
	}
	return p.decoder.Decode(v)
}

func (p *peer) hurry() error {
	if p.timeout == 0 {
		return nil
	}
	return p.SetDeadline(time.Now().Add(p.timeout))
}

// helloWait is for callers that say nothing.
const helloWait = 5 * time.Second

var errSizes = errors.New("the workers differ in their sizes")

// Serve serves a job's workers until one of them is gone or ctx ends. Neither is an error: the workers' supervisors
// know how they ended.
func Serve(ctx context.Context, listener net.Listener, world int) error {
	workers := make([]*peer, world)
	end := func() {
		listener.Close()
		for _, w := range workers {
			if w != nil {
				w.Close()
			}
		}
	}
	defer end()
	if err := gather(ctx, listener, workers); err != nil || ctx.Err() != nil {
		return err
	}
	defer context.AfterFunc(ctx, end)()
	parts := make([]message, world)
	for {
		for rank, w := range workers {
			parts[rank] = message{Numbers: parts[rank].Numbers[:0]}
			if err := w.receive(&parts[rank]); err != nil {
				return nil // it has ended
			}
			if len(parts[rank].Numbers) != len(parts[0].Numbers) {
				return fmt.Errorf("sum the parts of rank 0 and %d: %w", rank, errSizes)
			}
		}
		sum := parts[0]
		for _, part := range parts[1:] {
			for i, x := range part.Numbers {
				sum.Numbers[i] += x
			}
		}
		for _, w := range workers {
			if err := w.send(sum); err != nil {
				return nil // it has ended
			}
		}
	}
}

// gather waits until every worker has come once. It refuses invalid callers.
func gather(ctx context.Context, listener net.Listener, workers []*peer) error {
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	session := ""
	for missing := len(workers); missing > 0; {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for %d workers: %w", missing, err)
		}
		guest := newPeer(conn, helloWait)
		var h hello
		if guest.receive(&h) != nil || h.World != len(workers) || h.Rank < 0 || h.Rank >= h.World || workers[h.Rank] != nil || session != "" && h.Session != session {
			guest.Close()
			continue
		}
		guest.timeout = 0 // the workers' own timeouts end all waits
		if err := guest.SetDeadline(time.Time{}); err != nil {
			guest.Close()
			continue
		}
		session, workers[h.Rank] = h.Session, guest
		missing--
	}
	return nil
}

// Place is the rank of this worker, and the addresses of the servers.
type Place struct {
	Rank, World int
	Addresses   []string
	Session     string
	// JoinTimeout bounds the meeting, Timeout each single exchange afterwards.
	JoinTimeout, Timeout time.Duration
}

// Group is a worker's connections to the servers. It is not safe for concurrent use: every worker must make the same
// calls in the same order.
type Group struct {
	servers []*peer
}

// Join calls all servers, until each is there.
func Join(ctx context.Context, p Place) (*Group, error) {
	ctx, cancel := context.WithTimeout(ctx, p.JoinTimeout)
	defer cancel()
	g := &Group{}
	for _, address := range p.Addresses {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("call server %s: %w: %w", address, ring.ErrPeerLost, err), g.Close())
		}
		server := newPeer(conn, p.Timeout)
		g.servers = append(g.servers, server)
		if err := server.send(hello{p.Session, p.Rank, p.World}); err != nil {
			return nil, errors.Join(fmt.Errorf("greet server %s: %w: %w", address, ring.ErrPeerLost, err), g.Close())
		}
	}
	return g, nil
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// AllReduce replaces v, in every worker, by the sum of all workers' v, with the same bytes everywhere.
func (g *Group) AllReduce(v []float64) error {
	for i, server := range g.servers {
		if err := server.send(message{Numbers: g.part(v, i)}); err != nil {
			return fmt.Errorf("push to server %d: %w: %w", i, ring.ErrPeerLost, err)
		}
	}
	for i, server := range g.servers {
		part := g.part(v, i)
		sum := message{Numbers: part[:0]}
		if err := server.receive(&sum); err != nil {
			return fmt.Errorf("pull from server %d: %w: %w", i, ring.ErrPeerLost, err)
		}
		if len(sum.Numbers) != len(part) {
			return fmt.Errorf("pull from server %d: %w", i, errSizes)
		}
		copy(part, sum.Numbers)
	}
	return nil
}

// part returns a server's part of a vector. Its capacity ends with it, so that appends do not write beyond.
func (g *Group) part(v []float64, server int) []float64 {
	n := len(g.servers)
	begin, end := server*len(v)/n, (server+1)*len(v)/n
	return v[begin:end:end]
}

// Broadcast sends rank 0's payload to every worker, and returns it. The others need not give one.
func (g *Group) Broadcast(payload []byte) ([]byte, error) {
	server := g.servers[0]
	if err := server.send(message{Bytes: payload}); err != nil {
		return nil, fmt.Errorf("hand to all: %w: %w", ring.ErrPeerLost, err)
	}
	var all message
	if err := server.receive(&all); err != nil {
		return nil, fmt.Errorf("hand to all: %w: %w", ring.ErrPeerLost, err)
	}
	return all.Bytes, nil
}

// Close closes the connections; the other workers get ring.ErrPeerLost if they still wait for this one.
func (g *Group) Close() error {
	var errs []error
	for _, server := range g.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}
