package servers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sourcegraph/conc"
	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/servers"
)

// blockCase is a case of the file that the test of the Python library reads, too.
type blockCase struct {
	Name    string   `json:"name"`
	Servers int      `json:"servers"`
	Sizes   []int    `json:"sizes"`
	Slices  [][4]int `json:"slices"` // block, server, offset, size
}

func blockCases(t testing.TB) []blockCase {
	t.Helper()
	data, err := os.ReadFile("../../../libs/python/tests/blocks.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []blockCase
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatal(len(cases), err)
	}
	return cases
}

// TestBlocksAreBalancedAsInPython: one file holds both languages to the same slices, and those of ResNet-50 and VGG-11
// to the published requests and spread.
func TestBlocksAreBalancedAsInPython(t *testing.T) {
	for _, c := range blockCases(t) {
		got := [][4]int{}
		for _, s := range servers.Balance(c.Sizes, c.Servers) {
			got = append(got, [4]int{s.Block, s.Server, s.Offset, s.Size})
		}
		if !slices.Equal(got, c.Slices) {
			t.Errorf("%s: got\n%v, want\n%v", c.Name, got, c.Slices)
		}
	}
}

func TestEverySliceIsPlacedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 1<<30), 0, 60).Draw(t, "sizes")
		n := rapid.IntRange(1, 12).Draw(t, "servers")
		next, load, total, largest := make([]int, len(sizes)), make([]int, n), 0, 0
		seen := make([]bool, len(sizes))
		for _, s := range servers.Balance(sizes, n) {
			if s.Server < 0 || s.Server >= n || s.Offset != next[s.Block] {
				t.Fatalf("slice %+v does not follow offset %d", s, next[s.Block])
			}
			next[s.Block] += s.Size
			load[s.Server] += s.Size
			total += s.Size
			largest = max(largest, s.Size)
			seen[s.Block] = true
		}
		for i, size := range sizes {
			if next[i] != size || !seen[i] {
				t.Fatalf("block %d has %d of %d", i, next[i], size)
			}
		}
		// As with any list scheduling, no server has more than the mean and one slice. The small blocks, placed by count,
		// add at most 1 % each.
		small := total / n / 100 * len(sizes)
		if most := slices.Max(load); most > total/n+largest+small+1 {
			t.Fatalf("load %v of %d", load, total)
		}
	})
}

// atRandom is MXNet's assignment: a large block is shared out evenly to all servers, any other goes to a random one.
func atRandom(bound int, seed uint64) func(sizes []int, servers int) []servers.Slice {
	return func(sizes []int, n int) []servers.Slice {
		dice := rand.New(rand.NewPCG(seed, 1))
		var all []servers.Slice
		for block, size := range sizes {
			if size < bound {
				all = append(all, servers.Slice{Block: block, Server: dice.IntN(n), Size: size})
				continue
			}
			for i := range n {
				begin, end := i*size/n, (i+1)*size/n
				all = append(all, servers.Slice{Block: block, Server: i, Offset: begin, Size: end - begin})
			}
		}
		return all
	}
}

// link is the network of one server: the bytes of its connections take turns.
type link struct {
	calls chan net.Conn

	mu   sync.Mutex
	free time.Time
}

// linkBytesPerSecond is what a link carries.
const linkBytesPerSecond = 1e6

// pass returns when the link has carried the bytes.
func (l *link) pass(bytes int) {
	l.mu.Lock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(bytes) * time.Second / linkBytesPerSecond)
	until := l.free
	l.mu.Unlock()
	<-time.After(time.Until(until))
}

func (l *link) Accept() (net.Conn, error) {
	c, open := <-l.calls
	if !open {
		return nil, net.ErrClosed
	}
	return slowConn{c, l}, nil
}

func (l *link) Addr() net.Addr { return nil }
func (l *link) Close() error   { return nil }

type slowConn struct {
	net.Conn
	link *link
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.link.pass(n)
	return n, err
}

func (c slowConn) Write(b []byte) (int, error) {
	c.link.pass(len(b))
	return c.Conn.Write(b)
}

// TestBalancedBlocksAreExchangedFaster measures, in virtual time, an exchange of two workers around servers with a link
// of their own each: the blocks of published networks, a thousandth of their size, balanced and as MXNet assigns them.
func TestBalancedBlocksAreExchangedFaster(t *testing.T) {
	const scale, seeds = 1000, 10
	for i, name := range []string{"ResNet-50", "VGG-11", "VGG-16"} {
		c := blockCases(t)[i]
		sizes := slices.Clone(c.Sizes)
		for i := range sizes {
			sizes[i] = (sizes[i] + scale - 1) / scale
		}
		var at []time.Duration
		for seed := range uint64(seeds) {
			at = append(at, exchangeTime(t, sizes, c.Servers, atRandom(1e6/scale, seed)))
		}
		slices.Sort(at)
		balanced := exchangeTime(t, sizes, c.Servers, servers.Balance)
		t.Logf("%s: %d requests and %s balanced; %d and %s to %s, median %s, at random", name,
			len(servers.Balance(sizes, c.Servers)), balanced, len(atRandom(1e6/scale, 0)(sizes, c.Servers)), at[0], at[seeds-1], at[seeds/2])
		if balanced > at[seeds/2] {
			t.Errorf("%s: balanced blocks take %s, and at random %s", name, balanced, at[seeds/2])
		}
	}
}

// exchangeTime is the virtual time of one exchange.
func exchangeTime(t *testing.T, sizes []int, n int, share func(sizes []int, servers int) []servers.Slice) (took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const world, steps = 2, 2
		links := map[string]*link{}
		p := servers.Place{World: world, Session: "s", JoinTimeout: time.Hour, Timeout: time.Hour, Blocks: sizes, Share: share}
		p.Dial = func(_ context.Context, address string) (net.Conn, error) {
			mine, its := net.Pipe()
			links[address].calls <- its
			return mine, nil
		}
		var serving conc.WaitGroup
		for i := range n {
			address, l := fmt.Sprint(i), &link{calls: make(chan net.Conn, world)}
			p.Addresses, links[address] = append(p.Addresses, address), l
			serving.Go(func() {
				if err := servers.Serve(t.Context(), l, world); err != nil {
					t.Error(err)
				}
			})
		}
		err := together(t, p, func(_ int, g *servers.Group) error {
			v := make([]float64, sum(sizes))
			for i := range v {
				v[i] = 1 / float64(i+3) // all digits count
			}
			begun := time.Now()
			for range steps {
				if err := g.AllReduce(v); err != nil {
					return err
				}
			}
			took = time.Since(begun) / steps
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return took
}

func sum(sizes []int) int {
	total := 0
	for _, size := range sizes {
		total += size
	}
	return total
}
