package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/sourcegraph/conc"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/rpc"
)

// detachKey leaves a terminal: Ctrl-], as in telnet.
const detachKey = 0x1d

// terminal is the person's terminal. While it is raw, all keys go to the job.
type terminal struct {
	file   *os.File
	out    io.Writer
	before *term.State
	// keys has what was typed; it is closed once the terminal is gone.
	keys chan []byte
	// gone is closed after the detach key, or once nobody can type any more; detached tells which.
	gone     chan struct{}
	detached bool
	reading  conc.WaitGroup
	stop     context.CancelFunc
}

// Need returns the person's terminal, or an error unless a person types.
func Need(a *console.Console, command string) (*os.File, error) {
	if in, ok := a.Stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		return in, nil
	}
	return nil, exit.Errorf(exit.Usage, "without a terminal, `switchyard run` shows the output of a command", "switchyard %s needs a terminal as its input", command)
}

// openTerminal makes the terminal raw and begins to read it.
func openTerminal(ctx context.Context, file *os.File, out io.Writer) (*terminal, error) {
	before, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	t := &terminal{file: file, out: out, before: before, keys: make(chan []byte), gone: make(chan struct{}), stop: stop}
	t.reading.Go(func() { t.read(ctx) })
	return t, nil
}

// Close makes the terminal as it was.
func (t *terminal) Close() {
	t.stop()
	t.reading.Wait()
	_ = term.Restore(int(t.file.Fd()), t.before)
}

// read reads keys until the detach key. It waits in short turns, as a read of a terminal cannot be interrupted, and by
// select, as macOS cannot poll a terminal.
func (t *terminal) read(ctx context.Context) {
	defer close(t.gone)
	const turn = 50 * time.Millisecond
	for ctx.Err() == nil {
		var ready unix.FdSet
		ready.Set(int(t.file.Fd()))
		rest := unix.NsecToTimeval(int64(turn)) // select may change it
		if n, err := unix.Select(int(t.file.Fd())+1, &ready, nil, nil, &rest); n == 0 || errors.Is(err, unix.EINTR) {
			continue
		}
		typed := make([]byte, rpc.TerminalPacketSize)
		n, err := t.file.Read(typed)
		if err != nil || n == 0 {
			return
		}
		typed = typed[:n]
		for i, key := range typed {
			if t.detached = key == detachKey; t.detached {
				typed = typed[:i]
				break
			}
		}
		if len(typed) > 0 {
			select {
			case t.keys <- typed:
			case <-ctx.Done():
			}
		}
		if t.detached {
			return
		}
	}
}

// pause waits while no job is attached, and drops what is typed; it returns false if the person leaves.
func (t *terminal) pause(ctx context.Context, d time.Duration) bool {
	over := time.After(d)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.gone:
			return false
		case <-t.keys:
		case <-over:
			return true
		}
	}
}

func (t *terminal) size() rpc.TerminalSize {
	size, err := unix.IoctlGetWinsize(int(t.file.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return rpc.TerminalSize{Columns: 80, Rows: 24}
	}
	return rpc.TerminalSize{Columns: size.Col, Rows: size.Row}
}

// ErrDetached reports that the person has left the job.
var ErrDetached = errors.New("detached")

// session connects the terminal with a job until the program ends, whose status it returns; the person leaves
// (ErrDetached); or the connection ends.
func (t *terminal) session(ctx context.Context, p console.Terminal) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	var both conc.WaitGroup
	defer both.Wait()
	defer cancel()
	left := false
	both.Go(func() {
		defer cancel()
		left = t.send(ctx, p)
	})
	both.Go(func() {
		defer cancel()
		p.Watch(ctx)
	})
	for {
		packet, err := p.Receive(ctx)
		switch {
		case err != nil:
			cancel()
			if both.Wait(); left {
				err = ErrDetached
			}
			return 0, err
		case packet[0] == rpc.TerminalExit:
			var status int
			err := json.Unmarshal(packet[1:], &status)
			return status, err
		case packet[0] == rpc.TerminalData:
			if _, err := t.out.Write(packet[1:]); err != nil {
				return 0, ErrDetached
			}
		}
	}
}

// send sends keys and sizes until the connection ends, or the person leaves, which it reports.
func (t *terminal) send(ctx context.Context, p console.Terminal) (left bool) {
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, unix.SIGWINCH)
	defer signal.Stop(sizes)
	for {
		var packet []byte
		select {
		case <-ctx.Done():
			return false
		case typed := <-t.keys:
			packet = append([]byte{rpc.TerminalData}, typed...)
		case <-t.gone:
			return true
		case <-sizes:
			packet, _ = rpc.TerminalPacket(rpc.TerminalResize, t.size())
		}
		if p.Send(ctx, packet) != nil {
			return false
		}
	}
}
