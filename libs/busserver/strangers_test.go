package busserver_test

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

func TestConnectionsWithoutAKeyAreClosedOnceThereAreMany(t *testing.T) {
	s, keys := bustest.StartGuarded(t)
	b := bustest.ConnectWith(t, bus.Config{URL: s.URL(), Keys: string(keys), Name: "operator"})
	const strangers = 20
	for range strangers {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Read(make([]byte, 1)); err != nil { // it is known to the server, or soon
			t.Fatal(err)
		}
	}
	closed := 0
	for _, c := range []struct {
		after time.Duration
		most  int
		want  int
	}{{0, 10, 0}, {time.Second, 100, 0}, {time.Second, 10, strangers}} {
		for try := 0; try == 0 || closed < c.want && t.Context().Err() == nil && try < 1000; try++ {
			more, err := s.CloseStrangers(time.Now().Add(c.after), c.most-closed)
			if closed += more; err != nil {
				t.Fatal(err)
			}
			tick.Pause(t.Context(), time.Millisecond)
		}
		if closed != c.want {
			t.Errorf("%s later, with more than %d allowed: %d are closed, want %d", c.after, c.most, closed, c.want)
		}
	}
	if err := b.Ready(); err != nil || b.Reconnects() > 0 {
		t.Errorf("who has a key: %v, %d reconnects", err, b.Reconnects())
	}
}
