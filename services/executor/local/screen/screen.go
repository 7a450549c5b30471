// Package screen has the terminals on which programs run, and shows them to those who look at them.
package screen

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Shell makes the first process of an attempt interactive: it runs on a terminal.
type Shell struct {
	// Keep lets it run on without a viewer; otherwise it ends after LingerMillis without one. IdleMillis bounds the time
	// without a key pressed; 0 does not.
	Keep         bool  `json:"keep,omitempty"`
	LingerMillis int64 `json:"linger_ms,omitempty"`
	IdleMillis   int64 `json:"idle_ms,omitempty"`
}

// Screen is a terminal on which a program runs, and those who look at it. What the program writes goes to all of them;
// it waits for the slowest.
type Screen struct {
	master *os.File
	// copied is closed once nothing more is read from the program.
	copied chan struct{}

	mu      sync.Mutex
	viewers map[*net.UnixConn]struct{}
	// recent is the end of what was written, for the next viewer.
	recent []byte
	// last is the packet that viewers get at the end; nil before it.
	last []byte
	// left is when the last viewer went, or the screen was made.
	left time.Time

	// typed is when a viewer last pressed a key (Unix, nanoseconds). It has no lock: keys must arrive while output waits.
	typed atomic.Int64
}

const (
	// recentBytes is about what fits on a screen, with its colours.
	recentBytes = 8 << 10
	// viewerPatience is how long the program waits for a viewer that takes nothing; the viewer is then dropped.
	viewerPatience = time.Minute
	// drainTime is how long the last output of a program is waited for.
	drainTime = 200 * time.Millisecond
)

// New returns the screen of a terminal whose supervisor's end is master.
func New(master *os.File, now time.Time) *Screen {
	s := &Screen{master: master, copied: make(chan struct{}), viewers: map[*net.UnixConn]struct{}{}, left: now}
	s.typed.Store(now.UnixNano())
	return s
}

// Write shows output to all viewers.
func (s *Screen) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent = append(s.recent, data...)
	s.recent = s.recent[max(len(s.recent)-recentBytes, 0):]
	for c := range s.viewers {
		s.show(c, data)
	}
	return len(data), nil
}

func (s *Screen) show(c *net.UnixConn, data []byte) {
	if len(data) == 0 {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(viewerPatience))
	if _, err := c.Write(append([]byte{rpc.TerminalData}, data...)); err != nil {
		delete(s.viewers, c)
		_ = c.Close()
	}
}

// View shows the screen to a viewer, and types what it sends, until it goes.
func (s *Screen) View(c *net.UnixConn, size rpc.TerminalSize) {
	s.mu.Lock()
	s.viewers[c] = struct{}{}
	s.typed.Store(time.Now().UnixNano())
	s.show(c, s.recent)
	if s.last != nil {
		s.dismiss()
	}
	s.mu.Unlock()
	resize(s.master, size)
	packet := make([]byte, rpc.TerminalPacketSize+1)
	for {
		n, err := c.Read(packet)
		if err != nil || n == 0 || s.take(packet[:n]) != nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.viewers, c)
	s.left = time.Now()
	_ = c.Close()
}

// Resize gives the terminal another size.
func (s *Screen) Resize(size rpc.TerminalSize) { resize(s.master, size) }

// Close closes the terminal: its program gets SIGHUP.
func (s *Screen) Close() { _ = s.master.Close() }

// take does what a packet of a viewer says.
func (s *Screen) take(packet []byte) error {
	switch packet[0] {
	case rpc.TerminalData:
		s.typed.Store(time.Now().UnixNano())
		_, err := s.master.Write(packet[1:])
		return err
	case rpc.TerminalResize:
		var size rpc.TerminalSize
		if json.Unmarshal(packet[1:], &size) == nil {
			resize(s.master, size)
		}
	}
	return nil
}

// Copy shows what the program writes until it has closed its end.
func (s *Screen) Copy() {
	defer close(s.copied)
	_, _ = io.Copy(s, s.master)
}

// Drain waits until what the program has written was shown. A process that it left behind may hold the terminal.
func (s *Screen) Drain() {
	_ = s.master.SetReadDeadline(time.Now().Add(drainTime))
	<-s.copied
}

// End tells the viewers how the program ended, and lets them go.
func (s *Screen) End(status int) {
	packet, err := rpc.TerminalPacket(rpc.TerminalExit, status)
	if err != nil {
		return // a number is always encoded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = packet
	s.dismiss()
}

// dismiss tells those who look on that it is over.
func (s *Screen) dismiss() {
	for c := range s.viewers {
		_ = c.SetWriteDeadline(time.Now().Add(viewerPatience))
		_, _ = c.Write(s.last)
		_ = c.Close()
	}
	clear(s.viewers)
}

// Overdue says why a screen has to end: nobody has looked at it or pressed a key for long.
func (s *Screen) Overdue(shell Shell, now time.Time) (train.Reason, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	linger, idle := time.Duration(shell.LingerMillis)*time.Millisecond, time.Duration(shell.IdleMillis)*time.Millisecond
	switch {
	case !shell.Keep && len(s.viewers) == 0 && now.Sub(s.left) > linger:
		return train.Reason{
			Code: "NoTerminal", Message: "no terminal was attached for " + linger.String(),
			Hint: "switchyard shell --keep lets a shell run on by itself",
		}, true
	case idle > 0 && now.Sub(time.Unix(0, s.typed.Load())) > idle:
		return train.Reason{
			Code: "Idle", Message: "nobody pressed a key for " + idle.String(), Hint: "its --idle says how long a shell waits for one",
		}, true
	}
	return train.Reason{}, false
}
