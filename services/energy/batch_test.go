package energy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// TestBatchesGiveTheSameBooks books the intervals of three nodes around the end of an hour, one by one, and then cut
// into batches at random, whose writes break off at random; the process may then be another one, and batches come
// again. Energy, hours and epochs are the same. Only the joint seconds of a gang may differ after a crash.
func TestBatchesGiveTheSameBooks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			history := gangHistory(t, rng)
			one := newBooks(t)
			l := open(t, one)
			for _, m := range history {
				if err := l.take(within(t), []bus.Message{m}); err != nil {
					t.Fatal(err)
				}
			}
			many := newBooks(t)
			broken := takeInPieces(t, many, rng, history)
			want, got := stored(t, one), stored(t, many)
			seconds := cmpopts.IgnoreFields(train.Account{}, "Seconds", "JointSeconds", "JointPeakPower", "MeanPower", "PeakPower")
			if d := cmp.Diff(want, got, seconds, cmpopts.EquateApprox(0, 1e-6)); d != "" {
				t.Errorf("(-one by one +in batches, %d of them broken)\n%s", broken, d)
			}
			if broken == 0 {
				t.Error("no write broke off")
			}
		})
	}
}

// gangHistory is 60 seconds of three nodes. Each has a job of its own that ends epochs, and part of a gang.
func gangHistory(t *testing.T, rng *rand.Rand) (all []bus.Message) {
	for n := range uint64(60) {
		for node := range 3 {
			own := train.JobID(fmt.Sprintf("own-%d", node))
			meters := append(cpu(unit.Energy(rng.Int64N(50_000_000)), unit.Energy(rng.Int64N(20_000_000)), 2),
				event.Meter{Component: "node", Method: "pdu", Energy: unit.Energy(rng.Int64N(90_000_000))})
			m := interval(train.NodeID(fmt.Sprintf("n%d", node)), "b", 3571+n, meters, event.Use{Job: own, Attempt: 1 + int(n/25), Component: "cpu", Work: rng.Float64()},
				event.Use{Job: "gang", Attempt: 1, Component: "cpu", Work: rng.Float64()})
			if n%5 == 4 {
				m.Epochs = append(m.Epochs, event.EpochMark{Job: own, Attempt: 1 + int(n/25), EpochsDone: 1 + int(n/5), At: m.From.Add(300 * time.Millisecond)})
			}
			if n%7 == 6 && node == 0 {
				m.Epochs = append(m.Epochs, event.EpochMark{Job: "gang", Attempt: 1, EpochsDone: 1 + int(n/7), At: m.From.Add(300 * time.Millisecond)})
			}
			all = append(all, message(t, m, uint64(len(all)+1))...)
		}
	}
	return all
}

// takeInPieces books a history as the consumer does, and returns how many batches failed at first.
func takeInPieces(t *testing.T, k *books, rng *rand.Rand, history []bus.Message) (broken int) {
	l := open(t, k)
	for next := 0; next < len(history); {
		batch := history[next:min(next+1+rng.IntN(60), len(history))]
		ctx, cancel := context.WithTimeout(within(t), time.Duration(rng.IntN(8000))*time.Microsecond)
		err := l.take(ctx, batch)
		cancel()
		if err != nil {
			broken++
			if rng.IntN(2) == 0 {
				l = open(t, k)
			}
			// A write of the batch that broke off may still arrive, between a read and a write of this one.
			for err = bus.ErrConflict; errors.Is(err, bus.ErrConflict); {
				err = l.take(within(t), batch)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(3) > 0 { // else the acknowledgement is lost
			next += len(batch)
		}
	}
	return broken
}

// stored is what the buckets hold of the nodes, of their hours, and of the progress of jobs.
func stored(t *testing.T, k *books) [3]any {
	t.Helper()
	l := open(t, k)
	return [3]any{all(t, l.books, "node.*"), all(t, l.hourly), all(t, l.progress, "course.*")}
}

func all[T any](t *testing.T, kv *bus.KV[T], patterns ...string) map[string]T {
	t.Helper()
	entries, err := kv.List(within(t), patterns...)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]T{}
	for _, e := range entries {
		found[e.Key] = e.Value
	}
	return found
}
