package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/packets"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// webTerminal is a terminal through the service web: what is typed is the body of a request, what is seen the answer.
type webTerminal struct {
	// mu is held while a packet is sent: keys and sizes come from several goroutines.
	mu    sync.Mutex
	typed *io.PipeWriter
	seen  io.ReadCloser
	stop  context.CancelFunc
	// gone is closed at the end.
	gone <-chan struct{}
}

func (y onSocket) Terminal(ctx context.Context, _ train.NodeID, r rpc.TerminalRequest) (Terminal, error) {
	asks, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("ask for a terminal: %w", err)
	}
	var first bytes.Buffer
	_ = packets.Write(&first, asks) // a buffer takes all
	keys, typed := io.Pipe()
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, stop)() // until there is an answer
	t := &webTerminal{typed: typed, seen: http.NoBody, stop: stop, gone: life.Done()}
	path := jobPath(string(r.Job)) + "/terminal"
	body := struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&first, keys), keys}
	request, err := http.NewRequestWithContext(life, http.MethodPost, "http://"+api.SocketHost+path, body)
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("ask for a terminal: %w", err)
	}
	request.Header.Set("Content-Type", packets.MediaType)
	response, err := y.client.Do(request)
	if err != nil {
		t.Close()
		return nil, gone{exit.Errorf(exit.Unreachable, "is `switchyard up` running? Try again", "the service web went away: %v", err)}
	}
	t.seen = response.Body
	if response.StatusCode != http.StatusOK {
		defer t.Close()
		return nil, refused(path, response, exit.Failed)
	}
	return t, nil
}

// Send implements Terminal.
func (t *webTerminal) Send(_ context.Context, packet []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := packets.Write(t.typed, packet); err != nil {
		return fmt.Errorf("%w: %w", bus.ErrCut, err)
	}
	return nil
}

// Receive implements Terminal.
func (t *webTerminal) Receive(ctx context.Context) ([]byte, error) {
	defer context.AfterFunc(ctx, t.stop)()
	for {
		packet, err := packets.Read(t.seen, 2*rpc.TerminalPacketSize)
		switch {
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return nil, io.EOF
		case err != nil:
			return nil, fmt.Errorf("%w: %w", bus.ErrCut, err)
		case len(packet) > 0:
			return packet, nil
		}
	}
}

// Watch implements Terminal. The reader notices the end of the connection.
func (t *webTerminal) Watch(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-t.gone:
	}
}

// Close implements Terminal.
func (t *webTerminal) Close() {
	_ = t.typed.Close()
	t.stop()
	_ = t.seen.Close()
}
