package ring

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// helloLimitBytes bounds a message of the meeting; addresses of many thousand processes fit.
const helloLimitBytes = 1 << 20

// retryAfter is the pause between two tries to reach or to bind the meeting place.
const retryAfter = 50 * time.Millisecond

// helloWait is the time after which a silent caller is refused as a stranger.
const helloWait = 5 * time.Second

// Place is the rank of this process and the address where the processes meet.
type Place struct {
	Rank, World int
	// Master is host:port where rank 0 listens.
	Master string
	// Session must be equal in all processes; a process with another one is refused. It keeps stragglers of an older
	// attempt out.
	Session string
	// JoinTimeout bounds the meeting, Timeout each single exchange afterwards.
	JoinTimeout, Timeout time.Duration
}

// hello is the first message of a process to the meeting place or its neighbour.
type hello struct {
	Session string `json:"session"`
	World   int    `json:"world"`
	Rank    int    `json:"rank"`
	// Address is where the process listens for its neighbour in the ring.
	Address string `json:"address,omitempty"`
}

// answer is rank 0's message: first every process's address, later that all is ready.
type answer struct {
	Refused   string   `json:"refused,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Go        bool     `json:"go,omitempty"`
}

// Join meets the other processes at the master's address and closes the ring. Each process listens on its own port and
// reports it to rank 0, which sends all ports to all. A process then calls its neighbour and reports to rank 0; rank 0
// lets them go on only when all have done so, and until then all notice the loss of any at once.
func Join(ctx context.Context, p Place) (*Ring, error) {
	if p.World < 1 || p.Rank < 0 || p.Rank >= p.World {
		return nil, fmt.Errorf("join ring: no rank %d among %d processes", p.Rank, p.World)
	}
	if p.World == 1 {
		return &Ring{world: 1, timeout: p.Timeout}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.JoinTimeout)
	defer cancel()
	meet := p.call
	if p.Rank == 0 {
		meet = p.host
	}
	r, err := meet(ctx)
	if err != nil {
		return nil, fmt.Errorf("join ring of %d processes at %s as rank %d: %w", p.World, p.Master, p.Rank, err)
	}
	return r, nil
}

// host is Join for rank 0.
func (p Place) host(ctx context.Context) (*Ring, error) {
	meeting, err := p.listenMaster(ctx)
	if err != nil {
		return nil, err
	}
	defer meeting.Close()
	defer context.AfterFunc(ctx, func() { meeting.Close() })()
	guests := make([]net.Conn, p.World)
	defer closeAll(guests)
	addresses := make([]string, p.World)
	if err := p.gather(ctx, meeting, guests, addresses); err != nil {
		return nil, err
	}
	// The address under which the others reach this host is the one they called.
	own, err := net.Listen("tcp", net.JoinHostPort(hostOf(guests[1].LocalAddr()), "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for neighbour: %w", err)
	}
	defer own.Close()
	addresses[0] = own.Addr().String()
	if err := tellAll(guests, answer{Addresses: addresses}); err != nil {
		return nil, err
	}
	next, err := p.dialNext(ctx, addresses)
	if err != nil {
		return nil, err
	}
	for rank := 1; rank < p.World; rank++ {
		var ready answer
		if err := readMessage(guests[rank], &ready); err != nil {
			return nil, errors.Join(fmt.Errorf("wait for rank %d: %w: %w", rank, ErrPeerLost, err), next.Close())
		}
	}
	if err := tellAll(guests, answer{Go: true}); err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return p.acceptPrevious(ctx, own, next)
}

// gather accepts processes until each rank has come once. It refuses invalid callers; they must not keep a job from
// starting.
func (p Place) gather(ctx context.Context, meeting net.Listener, guests []net.Conn, addresses []string) error {
	for missing := p.World - 1; missing > 0; {
		guest, err := meeting.Accept()
		if err != nil {
			return fmt.Errorf("wait for %d more processes: %w", missing, cause(ctx, err))
		}
		var h hello
		err = errors.Join(
			guest.SetDeadline(time.Now().Add(helloWait)),
			readMessage(guest, &h),
			guest.SetDeadline(deadlineOf(ctx)))
		switch {
		case err != nil:
			guest.Close()
		case h.Session != p.Session || h.World != p.World:
			refuse(guest, "another job, attempt or configuration is meeting here")
		case h.Rank < 1 || h.Rank >= p.World || guests[h.Rank] != nil:
			refuse(guest, fmt.Sprintf("rank %d is taken or does not exist", h.Rank))
		default:
			guests[h.Rank], addresses[h.Rank] = guest, h.Address
			missing--
		}
	}
	return nil
}

// call is Join for the other ranks.
func (p Place) call(ctx context.Context) (*Ring, error) {
	master, err := dial(ctx, p.Master)
	if err != nil {
		return nil, err
	}
	defer master.Close()
	own, err := net.Listen("tcp", net.JoinHostPort(hostOf(master.LocalAddr()), "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for neighbour: %w", err)
	}
	defer own.Close()
	introduction := hello{Session: p.Session, World: p.World, Rank: p.Rank, Address: own.Addr().String()}
	if err := writeMessage(master, introduction); err != nil {
		return nil, fmt.Errorf("greet rank 0: %w: %w", ErrPeerLost, err)
	}
	var table answer
	if err := readMessage(master, &table); err != nil {
		return nil, fmt.Errorf("wait for addresses: %w: %w", ErrPeerLost, err)
	}
	if table.Refused != "" {
		return nil, fmt.Errorf("refused by rank 0: %s", table.Refused)
	}
	if len(table.Addresses) != p.World {
		return nil, fmt.Errorf("rank 0 gave %d addresses for %d processes", len(table.Addresses), p.World)
	}
	next, err := p.dialNext(ctx, table.Addresses)
	if err != nil {
		return nil, err
	}
	err = writeMessage(master, answer{})
	var begin answer
	if err == nil {
		err = readMessage(master, &begin)
	}
	if err != nil || !begin.Go {
		return nil, errors.Join(fmt.Errorf("wait for the others: %w", ErrPeerLost), err, next.Close())
	}
	return p.acceptPrevious(ctx, own, next)
}

// listenMaster binds the meeting place, and waits for it while a process of an earlier attempt still holds the port. It
// binds a loopback name as it is; any other may be the name of a service, which no host can bind.
func (p Place) listenMaster(ctx context.Context) (net.Listener, error) {
	host, port, err := net.SplitHostPort(p.Master)
	if err != nil {
		return nil, fmt.Errorf("read master address: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		host = ""
	}
	for {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err == nil {
			return listener, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || pause(ctx) != nil {
			return nil, fmt.Errorf("listen as master: %w", err)
		}
	}
}

// dial calls the meeting place until rank 0 is there.
func dial(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			if pause(ctx) != nil {
				return nil, fmt.Errorf("call rank 0: %w: %w", ErrPeerLost, err)
			}
			continue
		}
		if err := conn.SetDeadline(deadlineOf(ctx)); err != nil {
			return nil, errors.Join(fmt.Errorf("call rank 0: %w", err), conn.Close())
		}
		return conn, nil
	}
}

// dialNext calls the neighbour. The neighbour already listens, so one try is enough.
func (p Place) dialNext(ctx context.Context, addresses []string) (net.Conn, error) {
	rank := (p.Rank + 1) % p.World
	var dialer net.Dialer
	next, err := dialer.DialContext(ctx, "tcp", addresses[rank])
	if err != nil {
		return nil, fmt.Errorf("call rank %d: %w: %w", rank, ErrPeerLost, err)
	}
	if err := next.SetDeadline(deadlineOf(ctx)); err != nil {
		return nil, errors.Join(fmt.Errorf("call rank %d: %w", rank, err), next.Close())
	}
	if err := writeMessage(next, hello{Session: p.Session, World: p.World, Rank: p.Rank}); err != nil {
		return nil, errors.Join(fmt.Errorf("greet rank %d: %w: %w", rank, ErrPeerLost, err), next.Close())
	}
	return next, nil
}

// acceptPrevious accepts the call of the other neighbour, which has already been made.
func (p Place) acceptPrevious(ctx context.Context, own net.Listener, next net.Conn) (*Ring, error) {
	defer context.AfterFunc(ctx, func() { own.Close() })()
	want := (p.Rank + p.World - 1) % p.World
	for {
		previous, err := own.Accept()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("wait for rank %d: %w: %w", want, ErrPeerLost, cause(ctx, err)), next.Close())
		}
		var h hello
		if previous.SetDeadline(deadlineOf(ctx)) != nil || readMessage(previous, &h) != nil ||
			h.Session != p.Session || h.World != p.World || h.Rank != want {
			previous.Close()
			continue
		}
		if err := errors.Join(previous.SetDeadline(time.Time{}), next.SetDeadline(time.Time{})); err != nil {
			return nil, errors.Join(err, previous.Close(), next.Close())
		}
		return &Ring{rank: p.Rank, world: p.World, timeout: p.Timeout, next: next, previous: previous}, nil
	}
}

func tellAll(guests []net.Conn, a answer) error {
	for rank, guest := range guests {
		if guest == nil {
			continue
		}
		if err := writeMessage(guest, a); err != nil {
			return fmt.Errorf("tell rank %d: %w: %w", rank, ErrPeerLost, err)
		}
	}
	return nil
}

func refuse(guest net.Conn, reason string) {
	_ = writeMessage(guest, answer{Refused: reason}) // it learns no more than that in any case
	guest.Close()
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
}

// writeMessage writes v as JSON after its length, so that the reader takes exactly the message from the connection and
// leaves what follows.
func writeMessage(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

func readMessage(r io.Reader, v any) error {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > helloLimitBytes {
		return fmt.Errorf("message of %d bytes", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// pause waits a moment, or returns why it may not.
func pause(ctx context.Context) error {
	timer := time.NewTimer(retryAfter)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// cause prefers an expired deadline to the closed socket that it left behind.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func deadlineOf(ctx context.Context) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return host
}
