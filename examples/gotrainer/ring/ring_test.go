package ring_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/ring"
)

// Long enough that a test which waits for it has failed.
const never = 10 * time.Minute

func freeAddress(t interface{ Fatal(...any) }) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// together joins world processes and runs body in each; it returns their errors.
func together(master string, world int, timeout time.Duration, body func(*ring.Ring) error) []error {
	errs := make([]error, world)
	var all sync.WaitGroup
	for rank := range world {
		all.Go(func() {
			r, err := ring.Join(context.Background(), ring.Place{
				Rank: rank, World: world, Master: master, Session: "s", JoinTimeout: never, Timeout: timeout,
			})
			if err != nil {
				errs[rank] = err
				return
			}
			errs[rank] = errors.Join(body(r), r.Close())
		})
	}
	all.Wait()
	return errs
}

func TestAllReduceIsTheSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := rapid.IntRange(1, 5).Draw(t, "world")
		length := rapid.IntRange(0, 60).Draw(t, "length")
		rounds := rapid.IntRange(1, 3).Draw(t, "rounds")
		parts := make([][]float64, world)
		for rank := range parts {
			parts[rank] = rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), length, length).Draw(t, "part")
		}
		naive := slices.Clone(parts)
		results := make([][]float64, world)
		errs := together(freeAddress(t), world, never, func(r *ring.Ring) error {
			var v []float64
			for range rounds { // the ring must be ready for more after each
				v = slices.Clone(parts[r.Rank()])
				if err := r.AllReduce(v); err != nil {
					return err
				}
			}
			results[r.Rank()] = v
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		ordered := make([]float64, length)
		ring.SumInOrder(ordered, parts)
		for i := range length {
			sum, size := 0.0, 0.0
			for _, part := range naive {
				sum += part[i]
				size += math.Abs(part[i])
			}
			if math.Abs(results[0][i]-sum) > 1e-14*size {
				t.Fatalf("number %d: %g, naive sum %g", i, results[0][i], sum)
			}
		}
		for rank, result := range results {
			if !sameBits(result, ordered) {
				t.Fatalf("rank %d: %v, summed in one process %v", rank, result, ordered)
			}
		}
	})
}

func sameBits(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

// Parts far larger than any socket buffer: all send at once and none may wait for the other to read first.
func TestAllReduceOfMoreThanTheSocketsHold(t *testing.T) {
	const world, length = 2, 4 << 20
	errs := together(freeAddress(t), world, never, func(r *ring.Ring) error {
		v := make([]float64, length)
		for i := range v {
			v[i] = float64(i * (r.Rank() + 1))
		}
		if err := r.AllReduce(v); err != nil {
			return err
		}
		for i, x := range v {
			if x != float64(3*i) {
				return fmt.Errorf("number %d is %g", i, x)
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestBroadcastReachesAll(t *testing.T) {
	for world := 1; world <= 4; world++ {
		for _, payload := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("abc"), 1<<20)} {
			errs := together(freeAddress(t), world, never, func(r *ring.Ring) error {
				own := []byte("ignored")
				if r.Rank() == 0 {
					own = payload
				}
				got, err := r.Broadcast(own)
				if err == nil && !bytes.Equal(got, payload) {
					err = fmt.Errorf("rank %d got %d bytes, want %d", r.Rank(), len(got), len(payload))
				}
				return err
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The time allowed is minutes: only the broken connection itself can end the wait.
func TestLossOfAPeerReachesEveryOther(t *testing.T) {
	for world := 2; world <= 5; world++ {
		errs := together(freeAddress(t), world, never, func(r *ring.Ring) error {
			if r.Rank() == world-1 {
				return nil // gone, its connections closed
			}
			return r.AllReduce(make([]float64, 100))
		})
		for rank, err := range errs[:world-1] {
			if !errors.Is(err, ring.ErrPeerLost) {
				t.Errorf("rank %d of %d: %v, want ErrPeerLost", rank, world, err)
			}
		}
	}
}

func TestSilentPeerRunsIntoTheDeadline(t *testing.T) {
	done := make(chan struct{})
	errs := together(freeAddress(t), 2, 20*time.Millisecond, func(r *ring.Ring) error {
		if r.Rank() == 1 {
			<-done // alive and connected, but it does not take part
			return nil
		}
		defer close(done)
		return r.AllReduce(make([]float64, 10))
	})
	if !errors.Is(errs[0], ring.ErrPeerLost) {
		t.Errorf("rank 0: %v, want ErrPeerLost", errs[0])
	}
}

func TestDifferentSizesAreRefused(t *testing.T) {
	errs := together(freeAddress(t), 2, never, func(r *ring.Ring) error {
		return r.AllReduce(make([]float64, 10+10*r.Rank()))
	})
	if err := errors.Join(errs...); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("%v, want a complaint about sizes", err)
	}
}

func join(master string, rank, world int, session string, timeout time.Duration) (*ring.Ring, error) {
	return ring.Join(context.Background(), ring.Place{
		Rank: rank, World: world, Master: master, Session: session, JoinTimeout: timeout, Timeout: never,
	})
}

// Strangers are refused, and the ring forms without them.
func TestStrangersAreRefused(t *testing.T) {
	master := freeAddress(t)
	var all sync.WaitGroup
	var hostErr, guestErr error
	all.Go(func() {
		var r *ring.Ring
		if r, hostErr = join(master, 0, 2, "new", never); hostErr == nil {
			hostErr = r.Close()
		}
	})
	if _, err := join(master, 1, 2, "old", never); err == nil || !strings.Contains(err.Error(), "refused by rank 0") {
		t.Errorf("other session: %v", err)
	}
	if _, err := join(master, 1, 3, "new", never); err == nil || !strings.Contains(err.Error(), "refused by rank 0") {
		t.Errorf("other number of processes: %v", err)
	}
	noise, err := net.Dial("tcp", master)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := noise.Write(binary.LittleEndian.AppendUint32(nil, 1<<31)); err != nil {
		t.Fatal(err)
	}
	defer noise.Close()
	r, guestErr := join(master, 1, 2, "new", never)
	if guestErr == nil {
		guestErr = r.Close()
	}
	all.Wait()
	if err := errors.Join(hostErr, guestErr); err != nil {
		t.Error(err)
	}
}

func TestJoinGivesUp(t *testing.T) {
	t.Run("rank 0 alone", func(t *testing.T) {
		if _, err := join(freeAddress(t), 0, 2, "s", 30*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the deadline", err)
		}
	})
	t.Run("rank 1 alone", func(t *testing.T) {
		if _, err := join(freeAddress(t), 1, 2, "s", 30*time.Millisecond); !errors.Is(err, ring.ErrPeerLost) {
			t.Errorf("%v, want ErrPeerLost", err)
		}
	})
	t.Run("no such rank", func(t *testing.T) {
		if _, err := join("127.0.0.1:1", 2, 2, "s", never); err == nil {
			t.Error("rank 2 of 2 may join")
		}
	})
}

// A process that greets rank 0 and dies before the ring is closed fails all of them at once, although the time allowed
// is minutes.
func TestDeathDuringTheMeetingReachesAll(t *testing.T) {
	master := freeAddress(t)
	var all sync.WaitGroup
	errs := make([]error, 3)
	for rank := range 2 {
		all.Go(func() { _, errs[rank] = join(master, rank, 3, "s", never) })
	}
	var doomed net.Conn
	for doomed == nil { // until rank 0 listens
		doomed, _ = net.Dial("tcp", master)
	}
	gone := freeAddress(t)
	body := fmt.Sprintf(`{"session":"s","world":3,"rank":2,"address":%q}`, gone)
	if _, err := doomed.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
		t.Fatal(err)
	}
	if err := doomed.Close(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for rank, err := range errs[:2] {
		if !errors.Is(err, ring.ErrPeerLost) {
			t.Errorf("rank %d: %v, want ErrPeerLost", rank, err)
		}
	}
}
