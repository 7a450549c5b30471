package run

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
)

// A peer has a number of connections at once. A connection beyond it is cut off, and gets in when another one has gone.
func TestAPeerHasSoManyConnections(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var serving conc.WaitGroup
	serving.Go(func() {
		if err := ServePeers(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { AnswerWithin(w, time.Minute) }), 3); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); serving.Wait() })
	connect := func() net.Conn {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	answers := func(c net.Conn) bool {
		t.Helper()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return false
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	}
	var open []net.Conn
	for range 3 {
		open = append(open, connect())
		if !answers(open[len(open)-1]) {
			t.Fatal("no answer")
		}
	}
	if answers(connect()) {
		t.Error("a fourth connection is served")
	}
	if !answers(open[0]) {
		t.Error("an open one is not")
	}
	_ = open[1].Close()
	for !answers(connect()) { // until the server has seen it close
		if t.Context().Err() != nil {
			t.Fatal("no room after one has gone")
		}
	}
}
