package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/installation"
)

// SeenFolder is the folder of a data folder in which each process remembers what it saw of the bus, in a file with the
// name of its first service.
const SeenFolder = "seen"

// guards is the one guard over the streams and buckets that all services of a process share, once one of them has
// connected.
type guards struct {
	services []string

	mu   sync.Mutex
	conn *bus.Bus
	one  *bus.Guard
}

// of returns the guard of a process, and makes sure that the streams and buckets exist. It has a connection of its own,
// since services come and go.
func (g *guards) of(ctx context.Context, p Process) (*bus.Guard, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.one != nil {
		return g.one, nil
	}
	dir := filepath.Join(p.Common.DataDir, SeenFolder)
	path := filepath.Join(dir, g.services[0]+".json")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of what was seen of the bus: %w", err)
	}
	past, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read what was seen of the bus: %w", err)
	}
	b, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	one, err := b.Guard(ctx, past, func(data []byte) error { return installation.WriteFile(path, data) }, func(l bus.Loss) { bus.LogLoss(p.Log, l) })
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := b.Ensure(ctx); err != nil {
		b.Close()
		return nil, err
	}
	for _, other := range g.services[1:] { // each had a file of its own, with the same in it
		if err := os.Remove(filepath.Join(dir, other+".json")); err != nil && !errors.Is(err, os.ErrNotExist) {
			p.Log.Warn("an old file with what was seen of the bus stays", "error", err)
		}
	}
	g.conn, g.one = b, one
	return one, nil
}

func (g *guards) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn != nil {
		g.conn.Close()
	}
}
