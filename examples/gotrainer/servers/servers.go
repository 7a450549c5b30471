// Package servers sums vectors over the workers of a job by parameter servers. The vector's blocks are balanced over
// the servers, in slices. A server waits for a slice from all workers, sums in the order of their ranks, and returns
// the sum, one slice after the other. A lost worker or server ends the operation with ring.ErrPeerLost.
package servers

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/ring"
)

// hello is a worker's first message. The session must be the same for all of them.
type hello struct {
	Session     string
	Rank, World int
}

// message is a slice of a vector, or rank 0's broadcast.
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
	if p.timeout > 0 {
		if err := p.SetWriteDeadline(time.Now().Add(p.timeout)); err != nil {
			return err
		}
	}
	return p.encoder.Encode(v)
}

func (p *peer) receive(v any) error {
	if p.timeout > 0 {
		if err := p.SetReadDeadline(time.Now().Add(p.timeout)); err != nil {
			return err
		}
	}
	return p.decoder.Decode(v)
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

// Place is the rank of this worker, the addresses of the servers, and how the workers share out vectors among them.
type Place struct {
	Rank, World int
	Addresses   []string
	Session     string
	// Blocks are the sizes of the parameter blocks of a vector. A vector that is not as long as all of them is one block.
	// Share assigns blocks to servers; nil is Balance.
	Blocks []int
	Share  func(sizes []int, servers int) []Slice
	// Dial calls a server; nil is TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// JoinTimeout bounds the meeting, Timeout each single exchange afterwards.
	JoinTimeout, Timeout time.Duration
}

// Group is a worker's connections to the servers. It is not safe for concurrent use: every worker must make the same
// calls in the same order.
type Group struct {
	servers []*peer
	blocks  []int
	share   func(sizes []int, servers int) []Slice
	// shares are the slices of vectors by their length.
	shares map[int]share
}

// share is what each server sums of a vector, as the begins and ends of its slices.
type share [][][2]int

// Join calls all servers, until each is there.
func Join(ctx context.Context, p Place) (*Group, error) {
	ctx, cancel := context.WithTimeout(ctx, p.JoinTimeout)
	defer cancel()
	g := &Group{blocks: p.Blocks, share: p.Share, shares: map[int]share{}}
	if g.share == nil {
		g.share = Balance
	}
	for _, address := range p.Addresses {
		conn, err := p.call(ctx, address)
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

// call connects to a server. It repeats until the server is there.
func (p Place) call(ctx context.Context, address string) (net.Conn, error) {
	dial := p.Dial
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := dial(ctx, address)
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

// AllReduce replaces v, in every worker, by the sum of all workers' v, with the same bytes everywhere. Each server is
// pushed its slices while it returns those that are summed.
func (g *Group) AllReduce(v []float64) error {
	of := g.slicesOf(len(v))
	errs := make([]error, 2*len(g.servers))
	var all sync.WaitGroup
	for i, server := range g.servers {
		all.Go(func() { errs[2*i] = push(server, v, of[i]) })
		all.Go(func() { errs[2*i+1] = pull(server, v, of[i]) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("sum by server %d: %w", i/2, err)
		}
	}
	return nil
}

func push(server *peer, v []float64, of [][2]int) error {
	for _, at := range of {
		if err := server.send(message{Numbers: v[at[0]:at[1]]}); err != nil {
			return fmt.Errorf("push: %w: %w", ring.ErrPeerLost, err)
		}
	}
	return nil
}

func pull(server *peer, v []float64, of [][2]int) error {
	for _, at := range of {
		part := v[at[0]:at[1]:at[1]] // its capacity ends with it: nothing is written beyond
		sum := message{Numbers: part[:0]}
		if err := server.receive(&sum); err != nil {
			// The push to a server that no longer answers must not wait on.
			return errors.Join(fmt.Errorf("pull: %w: %w", ring.ErrPeerLost, err), server.Close())
		}
		if len(sum.Numbers) != len(part) {
			return fmt.Errorf("pull: %w", errSizes)
		}
		copy(part, sum.Numbers)
	}
	return nil
}

// slicesOf is what each server sums of a vector.
func (g *Group) slicesOf(length int) share {
	if known, ok := g.shares[length]; ok {
		return known
	}
	sizes, sum := g.blocks, 0
	for _, size := range sizes {
		sum += size
	}
	if sum != length {
		sizes = []int{length}
	}
	begins := make([]int, len(sizes))
	for i := range sizes[1:] {
		begins[i+1] = begins[i] + sizes[i]
	}
	of := make(share, len(g.servers))
	for _, s := range g.share(sizes, len(g.servers)) {
		if begin := begins[s.Block] + s.Offset; s.Size > 0 {
			of[s.Server] = append(of[s.Server], [2]int{begin, begin + s.Size})
		}
	}
	g.shares[length] = of
	return of
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
		if err := server.Close(); !errors.Is(err, net.ErrClosed) { // AllReduce has closed it
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
