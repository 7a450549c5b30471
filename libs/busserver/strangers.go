package busserver

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/switchyard-dl/switchyard/libs/tick"
)

// While there are more than crowdedAt connections, those without a key are closed after strangerTime, long before
// authSeconds are over: anyone on the machine can open them, and beyond maxConnections nobody gets in. A client shows
// its key as soon as it is connected, and tries again if that took too long.
const (
	crowdedAt      = maxConnections / 4
	strangerTime   = 250 * time.Millisecond
	strangersEvery = 100 * time.Millisecond
)

// guard closes connections without a key until ctx ends.
func (s *Server) guard(ctx context.Context, log *slog.Logger) {
	crowded := false
	for now := range tick.Every(ctx, strangersEvery) {
		closed, err := s.closeStrangers(now, crowdedAt)
		if err != nil {
			log.Warn("connections to the bus without a key stay", "error", err)
		}
		if closed > 0 && !crowded {
			log.Warn("many connections to the bus without a key are closed: they would keep others off it", "connections", closed)
		}
		crowded = s.s.NumClients() > crowdedAt
	}
}

// closeStrangers closes the connections that have had time to show a key, if there are more than some in all.
func (s *Server) closeStrangers(now time.Time, most int) (closed int, err error) {
	if s.open || s.s.NumClients() <= most {
		return 0, nil
	}
	all, err := s.s.Connz(&server.ConnzOptions{Username: true, Limit: maxConnections})
	if err != nil {
		return 0, fmt.Errorf("list the connections: %w", err)
	}
	for _, c := range all.Conns {
		if c.AuthorizedUser == "" && now.Sub(c.Start) >= strangerTime && s.s.DisconnectClientByID(c.Cid) == nil {
			closed++
		}
	}
	return closed, nil
}
