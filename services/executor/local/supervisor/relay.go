package supervisor

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// serveRelay passes on what connects to the socket of a relay, until stop is called.
func serveRelay(r *attempt.Relay) (stop func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	_ = os.Remove(r.Socket)
	listener, err := net.Listen("unix", r.Socket) //nolint:noctx // nothing is waited for
	if err != nil {
		return nil, fmt.Errorf("listen for the container: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var passing conc.WaitGroup
	passing.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { pass(ctx, from, r.To) })
		}
	})
	return func() { cancel(); _ = listener.Close(); passing.Wait() }, nil
}

// pass passes bytes in both directions until one side ends.
func pass(ctx context.Context, from net.Conn, address string) {
	to, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		_ = from.Close()
		return
	}
	end := func() { _, _ = from.Close(), to.Close() }
	defer context.AfterFunc(ctx, end)()
	var back conc.WaitGroup
	back.Go(func() { _, _ = io.Copy(from, to); end() })
	_, _ = io.Copy(to, from)
	end()
	back.Wait()
}
