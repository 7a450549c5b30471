package clitest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Obey plays register and executor. It enters each request in the record of its job.
func Obey(t *testing.T, b *bus.Bus, end train.State) (requests chan event.CancelRequested) {
	t.Helper()
	requests = make(chan event.CancelRequested, 10)
	ctx, stop := context.WithCancel(context.Background())
	var playing conc.WaitGroup
	playing.Go(func() {
		_ = b.Follow(ctx, event.StreamJobs, []string{"yard.job.*." + event.FactCancelRequested + ".v1"}, 1, func(m bus.Message) {
			body, err := event.Decode[event.CancelRequested](m.Data)
			if err != nil {
				t.Error(err)
			}
			requests <- body
			kv, err := bus.OpenKV(ctx, b, contract.Jobs)
			if err == nil {
				_, err = kv.Modify(ctx, m.Parsed.ID, func(j *train.Job) (bool, error) {
					j.CancelRequested, j.State = true, end
					return true, nil
				})
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	})
	t.Cleanup(func() {
		stop()
		playing.Wait()
	})
	return requests
}

// LogServer answers for an executor: it returns a log in small pieces.
type LogServer struct {
	Mu     sync.Mutex
	Output []byte
	Piece  int
	Ended  bool
	// Asked is called before each answer, with how often it was asked before.
	Asked func(s *LogServer, times int)
	times int
	Err   error
}

func (s *LogServer) answer(_ context.Context, r rpc.LogRequest) (rpc.LogChunk, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Asked != nil {
		s.Asked(s, s.times)
	}
	s.times++
	if s.Err != nil {
		return rpc.LogChunk{}, s.Err
	}
	size := int64(len(s.Output))
	from := r.Offset
	if from < 0 {
		from = max(size+from, 0)
	}
	from = min(from, size)
	to := min(from+int64(s.Piece), size)
	return rpc.LogChunk{Data: s.Output[from:to], Next: to, Size: size, Ended: s.Ended && to == size}, nil
}

// Serve runs the server as the executor of a node for the length of the test.
func (s *LogServer) Serve(t *testing.T, b *bus.Bus, node train.NodeID) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var serving conc.WaitGroup
	serving.Go(func() { _ = bus.Answer(ctx, b, rpc.LogSubject(node), s.answer) })
	t.Cleanup(func() {
		stop()
		serving.Wait()
	})
	// The subscription is there when the first question is answered.
	for {
		_, err := bus.Ask[rpc.LogRequest, rpc.LogChunk](t.Context(), b, rpc.LogSubject(node), rpc.LogRequest{Job: "probe"})
		if !errors.Is(err, bus.ErrAway) {
			break
		}
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.times = 0
}

// Write writes a file and makes its folder.
func Write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
