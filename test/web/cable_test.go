package web

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/sourcegraph/conc"
)

// cable is a connection to a service that can be cut.
type cable struct {
	address string
	to      string

	mu   sync.Mutex
	off  bool
	open map[net.Conn]struct{}
}

func newCable(t testing.TB, to string) *cable {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{address: listener.Addr().String(), to: to, open: map[net.Conn]struct{}{}}
	var running conc.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { c.carry(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		c.cut()
		running.Wait()
	})
	return c
}

// carry copies both ways until one end closes.
func (c *cable) carry(near net.Conn) {
	defer c.end(near)
	var dialer net.Dialer
	far, err := dialer.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer c.end(far)
	if !c.begin(near) || !c.begin(far) {
		return
	}
	var back conc.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	})
	_, _ = io.Copy(far, near)
	_ = far.Close()
	back.Wait()
}

// begin remembers a connection; it is false if the cable is cut.
func (c *cable) begin(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[conn] = struct{}{}
	return !c.off
}

func (c *cable) end(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
	_ = conn.Close()
}

// cut ends all connections, and those to come.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = true
	for conn := range c.open {
		_ = conn.Close()
	}
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = false
}
