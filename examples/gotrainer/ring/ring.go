// Package ring joins the processes of a job in a ring of TCP connections and sums vectors over it: reduce-scatter, then
// all-gather (Patarasuk and Yuan 2009), so that a process sends about twice the vector whatever the number of
// processes. The order of additions depends only on the number of processes. A lost or silent peer ends the operation
// with ErrPeerLost; there is no reconnecting, because the scheduler restarts the job from its checkpoint.
package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// ErrPeerLost says that another process of the job ended or was silent for too long.
var ErrPeerLost = errors.New("peer lost")

// broadcastLimitBytes keeps a corrupt length from asking for all of the memory.
const broadcastLimitBytes = 1 << 31

// headerBytes is the length of a frame's header: sequence number, then payload length.
const headerBytes = 12

// Ring is one process's place in the ring. It is not safe for concurrent use: every
// process must make the same calls in the same order.
type Ring struct {
	rank, world    int
	timeout        time.Duration
	next, previous net.Conn // nil when the process is alone
	sequence       uint32
	sendBuffer     []byte
	receiveBuffer  []byte
}

// Rank returns this process's number, from 0.
func (r *Ring) Rank() int { return r.rank }

// Close closes the connections; the other processes get ErrPeerLost if they still wait for this one.
func (r *Ring) Close() error {
	if r.world == 1 {
		return nil
	}
	return errors.Join(r.next.Close(), r.previous.Close())
}

// AllReduce replaces v, in every process, by the sum of all processes' v. The result
// has the same bytes everywhere. All must give the same length.
func (r *Ring) AllReduce(v []float64) error {
	// Reduce-scatter: part c starts at rank c and collects each rank's share on its
	// way round, so that afterwards rank r holds the whole sum of part r+1.
	for s := range r.world - 1 {
		if err := r.exchange(r.part(v, -s), r.part(v, -s-1), true); err != nil {
			return fmt.Errorf("reduce %d numbers over %d processes: %w", len(v), r.world, err)
		}
	}
	// All-gather: the finished parts go round once more.
	for s := range r.world - 1 {
		if err := r.exchange(r.part(v, 1-s), r.part(v, -s), false); err != nil {
			return fmt.Errorf("gather %d numbers over %d processes: %w", len(v), r.world, err)
		}
	}
	return nil
}

// part returns the part of v that lies the given number of places after this rank's own.
func (r *Ring) part(v []float64, places int) []float64 {
	begin, end := chunk(len(v), r.world, (r.rank+places+2*r.world)%r.world)
	return v[begin:end]
}

// exchange sends out to the next process while it receives into in from the previous one: both at once, since with all
// processes sending first, parts larger than the sockets' buffers would block the ring.
func (r *Ring) exchange(out, in []float64, accumulate bool) error {
	r.sendBuffer = r.sendBuffer[:0]
	for _, x := range out {
		r.sendBuffer = binary.LittleEndian.AppendUint64(r.sendBuffer, math.Float64bits(x))
	}
	var sending sync.WaitGroup
	var sendErr error
	sequence := r.sequence
	r.sequence++
	sending.Go(func() { sendErr = r.send(sequence, r.sendBuffer) })
	receiveErr := r.receiveInto(sequence, in, accumulate)
	if receiveErr != nil {
		// The peer will read no further; do not wait for the sender's own deadline.
		_ = r.next.SetDeadline(time.Unix(1, 0))
	}
	sending.Wait()
	if receiveErr != nil {
		return receiveErr
	}
	return sendErr
}

func (r *Ring) receiveInto(sequence uint32, in []float64, accumulate bool) error {
	payload, err := r.receive(sequence, uint64(8*len(in)))
	if err != nil {
		return err
	}
	if len(payload) != 8*len(in) {
		return fmt.Errorf("rank %d sent %d bytes where %d were due: the processes differ in their sizes",
			r.before(), len(payload), 8*len(in))
	}
	for i := range in {
		x := math.Float64frombits(binary.LittleEndian.Uint64(payload[8*i:]))
		if accumulate {
			x += in[i]
		}
		in[i] = x
	}
	return nil
}

// Broadcast sends rank 0's payload to every process, and returns it. The other processes' own payload is ignored. The
// result is valid until the next call.
func (r *Ring) Broadcast(payload []byte) ([]byte, error) {
	if r.world == 1 {
		return payload, nil
	}
	sequence := r.sequence
	r.sequence++
	if r.rank != 0 {
		received, err := r.receive(sequence, broadcastLimitBytes)
		if err != nil {
			return nil, fmt.Errorf("receive broadcast: %w", err)
		}
		payload = received
	}
	if r.rank != r.world-1 {
		if err := r.send(sequence, payload); err != nil {
			return nil, fmt.Errorf("pass broadcast on: %w", err)
		}
	}
	return payload, nil
}

// send writes one frame to the next process.
func (r *Ring) send(sequence uint32, payload []byte) error {
	var header [headerBytes]byte
	binary.LittleEndian.PutUint32(header[:], sequence)
	binary.LittleEndian.PutUint64(header[4:], uint64(len(payload)))
	if err := r.next.SetWriteDeadline(time.Now().Add(r.timeout)); err != nil {
		return r.lost(r.after(), "send to", err)
	}
	frame := net.Buffers{header[:], payload}
	if _, err := frame.WriteTo(r.next); err != nil {
		return r.lost(r.after(), "send to", err)
	}
	return nil
}

// receive reads one frame of at most limit bytes from the previous process.
func (r *Ring) receive(sequence uint32, limit uint64) ([]byte, error) {
	var header [headerBytes]byte
	if err := r.previous.SetReadDeadline(time.Now().Add(r.timeout)); err != nil {
		return nil, r.lost(r.before(), "receive from", err)
	}
	if _, err := io.ReadFull(r.previous, header[:]); err != nil {
		return nil, r.lost(r.before(), "receive from", err)
	}
	got, length := binary.LittleEndian.Uint32(header[:]), binary.LittleEndian.Uint64(header[4:])
	if got != sequence {
		return nil, fmt.Errorf("rank %d is at message %d, this process at %d: they no longer do the same",
			r.before(), got, sequence)
	}
	if length > limit {
		return nil, fmt.Errorf("rank %d sent %d bytes where at most %d were due", r.before(), length, limit)
	}
	if uint64(cap(r.receiveBuffer)) < length {
		r.receiveBuffer = make([]byte, length)
	}
	payload := r.receiveBuffer[:length]
	if _, err := io.ReadFull(r.previous, payload); err != nil {
		return nil, r.lost(r.before(), "receive from", err)
	}
	return payload, nil
}

func (r *Ring) after() int  { return (r.rank + 1) % r.world }
func (r *Ring) before() int { return (r.rank + r.world - 1) % r.world }

func (r *Ring) lost(rank int, what string, err error) error {
	return fmt.Errorf("%s rank %d: %w: %w", what, rank, ErrPeerLost, err)
}
