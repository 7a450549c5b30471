package servers_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/ring"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/servers"
)

// serve starts servers for a number of workers and returns the place of rank 0.
func serve(t *testing.T, n, world int) servers.Place {
	t.Helper()
	p := servers.Place{World: world, Session: "s", JoinTimeout: time.Minute, Timeout: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	var serving conc.WaitGroup
	t.Cleanup(func() { cancel(); serving.Wait() })
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p.Addresses = append(p.Addresses, listener.Addr().String())
		serving.Go(func() {
			if err := servers.Serve(ctx, listener, world); err != nil {
				t.Error(err)
			}
		})
	}
	return p
}

// together runs do in every worker, and returns their errors.
func together(t *testing.T, p servers.Place, do func(rank int, g *servers.Group) error) error {
	t.Helper()
	workers := pool.New().WithErrors()
	for rank := range p.World {
		mine := p
		mine.Rank = rank
		workers.Go(func() error {
			g, err := servers.Join(t.Context(), mine)
			if err != nil {
				return err
			}
			return errors.Join(do(rank, g), g.Close())
		})
	}
	return workers.Wait()
}

func TestSumsAndWordsOfAllWorkers(t *testing.T) {
	for _, length := range []int{1, 2, 7, 1000} { // also fewer numbers than servers
		err := together(t, serve(t, 3, 4), func(rank int, g *servers.Group) error {
			for step := range 3 {
				v, want := make([]float64, length), make([]float64, length)
				for i := range v {
					v[i], want[i] = float64(i*step+rank), float64(4*i*step+6)
				}
				if err := g.AllReduce(v); err != nil {
					return err
				}
				if !slices.Equal(v, want) {
					return fmt.Errorf("sum %v, want %v", v, want)
				}
				var mine []byte
				if rank == 0 {
					mine = []byte{byte(step)}
				}
				if got, err := g.Broadcast(mine); err != nil || !slices.Equal(got, []byte{byte(step)}) {
					return fmt.Errorf("step %d: %v %w", step, got, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("length %d: %v", length, err)
		}
	}
}

// TestBlocksOfAnySizeAreSummed: vectors in blocks larger than what a connection buffers, and empty ones.
func TestBlocksOfAnySizeAreSummed(t *testing.T) {
	p := serve(t, 3, 2)
	p.Blocks = []int{500_000, 0, 1, 70_000, 300_000}
	err := together(t, p, func(rank int, g *servers.Group) error {
		v := make([]float64, 870_001)
		for step := range 2 {
			for i := range v {
				v[i] = float64(i*(rank+1) + step)
			}
			if err := g.AllReduce(v); err != nil {
				return err
			}
			for i, sum := range v {
				if sum != float64(3*i+2*step) {
					return fmt.Errorf("step %d: number %d is %v", step, i, sum)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestALostWorkerIsSeenByAll(t *testing.T) {
	err := together(t, serve(t, 2, 3), func(rank int, g *servers.Group) error {
		if rank == 2 {
			return nil
		}
		if err := g.AllReduce(make([]float64, 10)); !errors.Is(err, ring.ErrPeerLost) {
			return fmt.Errorf("rank %d: %w, want that a peer is lost", rank, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAStrangerKeepsNoJobFromStarting(t *testing.T) {
	p := serve(t, 1, 1)
	stranger := p
	stranger.World, stranger.Rank = 9, 8
	g, err := servers.Join(t.Context(), stranger)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.AllReduce([]float64{1}); !errors.Is(err, ring.ErrPeerLost) {
		t.Errorf("a stranger is answered: %v", err)
	}
	if err := together(t, p, func(_ int, g *servers.Group) error { return g.AllReduce([]float64{1}) }); err != nil {
		t.Error(err)
	}
}
