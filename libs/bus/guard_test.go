package bus_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// site is a server over a folder, and the file in which one service remembers what it saw.
type site struct {
	t      *testing.T
	dir    string
	server *busserver.Server
	bus    *bus.Bus
	guard  *bus.Guard
	// log is what the service has said.
	log lines
}

// open starts the server and connects as a service does.
func (s *site) open() {
	s.t.Helper()
	server, err := busserver.Start(busserver.Options{Open: true, Dir: filepath.Join(s.dir, "bus")})
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = server
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	if s.bus, err = bus.Connect(ctx, bus.Config{URL: server.URL(), Name: "test", GuardEvery: 300 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&s.log, nil))}); err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(s.dir, "seen")
	past, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	s.guard, err = s.bus.Guard(ctx, past, func(data []byte) error { return os.WriteFile(path, data, 0o600) }, func(bus.Loss) {})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.bus.Ensure(ctx); err != nil {
		s.t.Fatal(err)
	}
	s.until("all is seen", func() bool {
		past, err := os.ReadFile(path)
		return err == nil && strings.Count(string(past), "created") == len(event.Streams())+len(contract.Buckets())
	})
}

func (s *site) close() {
	s.bus.Close()
	s.server.Stop()
}

func (s *site) until(what string, holds func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for range tick.Every(ctx, 20*time.Millisecond) {
		if holds() {
			return
		}
	}
	s.t.Fatalf("waited too long for: %s; losses %v", what, s.guard.Losses())
}

// submit stores facts and waits until the guard has seen them.
func (s *site) submit(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		f := event.Fact{Subject: event.Subject{Entity: "job", ID: id, Fact: event.FactSubmitted, Version: 1}, Key: id, Body: map[string]string{"name": strings.Repeat("x", 1000)}}
		if err := s.bus.Publish(s.t.Context(), f); err != nil {
			s.t.Fatal(err)
		}
	}
	last, err := s.bus.LastSequence(s.t.Context(), event.StreamJobs)
	if err != nil {
		s.t.Fatal(err)
	}
	s.until("the facts are remembered", func() bool {
		past, err := os.ReadFile(filepath.Join(s.dir, "seen"))
		return err == nil && strings.Contains(string(past), `"last":`+strconv.FormatUint(last, 10))
	})
}

func (s *site) jetStream() jetstream.JetStream { return bustest.JetStream(s.t, s.server.URL()) }

// lost waits for a loss of a stream whose cause has some words, and wants no other.
func (s *site) lost(stream, words string) {
	s.t.Helper()
	s.until(stream+" "+words, func() bool {
		for _, l := range s.guard.Losses() {
			if l.Stream == stream && strings.Contains(l.Cause, words) {
				return true
			}
		}
		return false
	})
	if all := s.guard.Losses(); len(all) != 1 || !errors.Is(s.guard.Err(), bus.ErrDamaged) {
		s.t.Errorf("losses %v, error %v; want one", all, s.guard.Err())
	}
}

func (s *site) well(what string) {
	s.t.Helper()
	s.until(what, func() bool { return s.guard.Err() == nil && s.bus.Ready() == nil })
}

func (s *site) blocks(stream string) []string {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.dir, "bus", "jetstream", "*", "streams", stream, "msgs", "*"))
	if err != nil || len(found) == 0 {
		s.t.Fatalf("files of %s: %v, %v", stream, found, err)
	}
	return found
}

func TestALostStreamIsNoticedAndRepaired(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	s.open()
	s.well("a new bus")
	s.submit("a", "b", "c")
	s.close()
	s.open()
	s.well("an orderly restart")

	// The newest message is cut off, as after a fault of the disk.
	s.close()
	for _, path := range s.blocks(event.StreamJobs) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".blk") {
			err = os.Truncate(path, info.Size()-100)
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.open()
	s.lost(event.StreamJobs, "ends at 2, but had 3")
	if err := s.bus.Ready(); !errors.Is(err, bus.ErrDamaged) {
		t.Errorf("ready: %v", err)
	}
	s.close()
	s.open()
	s.lost(event.StreamJobs, "ends at 2, but had 3") // until it is repaired
	if err := s.bus.Repaired(t.Context(), event.StreamJobs, time.Now()); err != nil {
		t.Fatal(err)
	}
	s.well("a repair")

	// A bucket that cannot be made again is deleted.
	if err := s.jetStream().DeleteKeyValue(t.Context(), string(contract.Groups)); err != nil {
		t.Fatal(err)
	}
	s.lost("KV_"+string(contract.Groups), "was made again")
	// A bucket that is observed again comes back by itself.
	if err := s.bus.Repaired(t.Context(), "KV_"+string(contract.Groups), time.Now()); err != nil {
		t.Fatal(err)
	}
	s.well("another repair")
	if err := s.jetStream().DeleteKeyValue(t.Context(), string(contract.Nodes)); err != nil {
		t.Fatal(err)
	}
	s.until("an observed bucket is made again", func() bool {
		_, err := s.jetStream().KeyValue(t.Context(), string(contract.Nodes))
		return err == nil
	})
	s.log.wait(t, `level=ERROR msg="a stream was lost, and is made again: what it held comes back, or does not count" stream=KV_`+string(contract.Nodes))
	s.well("it is observed again")
	// Messages in the middle are deleted.
	s.submit("d", "e", "f")
	jobs, err := s.jetStream().Stream(t.Context(), event.StreamJobs)
	if err != nil {
		t.Fatal(err)
	}
	if err := jobs.DeleteMsg(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	s.lost(event.StreamJobs, "has a gap: 1 messages")
	s.close()
}

// The check at the start of a bus takes facts that services store and fold meanwhile for no loss.
func TestFactsThatAreFoldedMeanwhileAreNotLost(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	s.open()
	defer s.close()
	type folded struct {
		LastSequence uint64 `json:"last_sequence"`
	}
	register, err := bus.OpenKV(t.Context(), s.bus, contract.Bucket[folded](contract.Jobs))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var folding conc.WaitGroup
	defer folding.Wait()
	defer cancel()
	folding.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			id := "job-" + strconv.Itoa(n%50)
			f := event.Fact{Subject: event.Subject{Entity: "job", ID: id, Fact: event.FactSubmitted, Version: 1}, Key: strconv.Itoa(n), Body: map[string]string{}}
			if s.bus.Publish(ctx, f) != nil {
				return
			}
			if last, err := s.bus.LastSequence(ctx, event.StreamJobs); err == nil {
				_ = register.Put(ctx, id, folded{last})
			}
		}
	})
	for range 300 {
		if err := s.bus.CheckJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := s.jetStream().Stream(t.Context(), event.StreamJobs)
	if err != nil {
		t.Fatal(err)
	}
	if ends := stream.CachedInfo().Config.Metadata["switchyard-ends"]; ends != "" {
		t.Errorf("JOBS was found to end before %s", ends)
	}
}
