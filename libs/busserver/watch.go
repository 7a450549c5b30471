package busserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/disk"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// lookEvery is the time between two looks at the disk.
const lookEvery = time.Second

// ErrFull means that the disk of the bus has no room.
var ErrFull = errors.New("the disk of the bus is full: make room on it")

// Watch looks at the server's disk until ctx ends, and logs the server's warnings. After a write has failed the server
// writes nothing more to that stream: as soon as there is room again, Watch opens its files again. Clients stay
// connected, except those without a key while there are many.
func (s *Server) Watch(ctx context.Context, log *slog.Logger) {
	s.s.SetLoggerV2(serverLog{log, s.noteFailure}, false, false, false)
	var guarding conc.WaitGroup
	defer guarding.Wait()
	guarding.Go(func() { s.guard(ctx, log) })
	for range tick.Every(ctx, lookEvery) {
		room, err := disk.Of(s.dir)
		if err != nil {
			log.Warn("the disk of the bus cannot be looked at", "error", err)
			continue
		}
		s.look(log, room)
	}
}

func (s *Server) look(log *slog.Logger, room disk.Room) {
	if s.failed.Load() && !room.Full() {
		if err := s.reopen(func() error { return nil }); err != nil {
			log.Error("the bus does not open its files again", "error", err)
			return
		}
		log.Info("the bus has room again, and writes again", "dir", s.dir, "left", room.Free.String())
	}
	s.room.Store(&room)
}

// noteFailure takes a line of the server's log.
func (s *Server) noteFailure(line string) {
	if strings.Contains(line, "no space left on device") || strings.Contains(line, "disk quota exceeded") {
		s.failed.Store(true)
	}
}

// reopen closes the files of all streams, calls between, and opens them again.
func (s *Server) reopen(between func() error) error {
	s.reopening.Lock()
	defer s.reopening.Unlock()
	if err := s.s.ShutdownJetStream(); err != nil {
		return fmt.Errorf("close the streams: %w", err)
	}
	failed := between()
	s.failed.Store(false)
	if err := s.s.EnableJetStream(&server.JetStreamConfig{
		StoreDir: s.dir, SyncAlways: true, MaxMemory: maxMemoryBytes, MaxStore: maxStoreBytes, Strict: true,
	}); err != nil {
		s.failed.Store(true)
		return fmt.Errorf("open the streams: %w", err)
	}
	return failed
}

// Trouble says why the server stores nothing; nil if it does. It is up to date while Watch runs.
func (s *Server) Trouble() error {
	room := s.room.Load()
	if room != nil && (room.Full() || s.failed.Load()) {
		return fmt.Errorf("%w: %w", ErrFull, room.Err())
	}
	return nil
}

// serverLog passes warnings and errors of the server on.
type serverLog struct {
	log     *slog.Logger
	failure func(line string)
}

func (l serverLog) Noticef(string, ...any) {}

func (l serverLog) Debugf(string, ...any) {}

func (l serverLog) Tracef(string, ...any) {}

func (l serverLog) Warnf(format string, v ...any) {
	l.log.Warn("the bus warns", "message", fmt.Sprintf(format, v...))
}

func (l serverLog) Errorf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	// An attacker, or a process with a wrong folder of keys.
	if strings.Contains(line, "authentication error") || strings.Contains(line, "Violation") {
		l.log.Warn("the bus refuses", "message", line)
		return
	}
	l.failure(line)
	l.log.Error("the bus reports an error", "message", line)
}

func (l serverLog) Fatalf(format string, v ...any) { l.Errorf(format, v...) }
