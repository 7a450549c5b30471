package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver/backup"
	"github.com/switchyard-dl/switchyard/libs/bustest"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// TestABrokenSnapshotIsNoEnd: what a bucket has lost comes back from the newest snapshot that can be read, and if none
// can, that is an error.
func TestABrokenSnapshotIsNoEnd(t *testing.T) {
	b := bustest.Connect(t, bustest.Start(t), "x")
	nodes, err := bus.OpenKV(t.Context(), b, contract.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	dir, start := t.TempDir(), time.Now().UTC().Truncate(time.Second)
	const taken = 3
	for i := range taken {
		if err := nodes.Put(t.Context(), "n1", train.Node{ID: "n1", Cores: i + 1}); err != nil {
			t.Fatal(err)
		}
		at := start.Add(time.Duration(i) * time.Hour)
		if _, err := backup.Write(t.Context(), b, filepath.Join(dir, at.Format(snapshotForm)), at, isBucket); err != nil {
			t.Fatal(err)
		}
	}
	snapshots, err := snapshotsIn(dir)
	if err != nil || len(snapshots) != taken {
		t.Fatalf("%d snapshots, %v", len(snapshots), err)
	}
	older := before(snapshots, start.Add(taken*time.Hour))
	spoil := func(s snapshot) {
		if err := os.Truncate(s.path, 100); err != nil {
			t.Fatal(err)
		}
	}
	for broken := range taken {
		e, err := nodes.Get(t.Context(), "n1")
		if err != nil {
			t.Fatal(err)
		}
		if err := nodes.Delete(t.Context(), "n1", e.Revision); err != nil {
			t.Fatal(err)
		}
		put, err := putBack(t.Context(), b, string(contract.Nodes), older)
		if err != nil || put.records != 1 || put.from != older[broken].path || (put.unusable != nil) != (broken > 0) {
			t.Fatalf("with %d broken: %+v, %v", broken, put, err)
		}
		if e, err = nodes.Get(t.Context(), "n1"); err != nil || e.Value.Cores != taken-broken {
			t.Fatalf("with %d broken: %+v, %v", broken, e, err)
		}
		spoil(older[broken])
	}
	if _, err := putBack(t.Context(), b, string(contract.Nodes), older); err == nil || !strings.Contains(err.Error(), older[0].path) {
		t.Errorf("all are broken: %v", err)
	}
}

// What came back from a snapshot lacks what was written since: the loss counts until a repair, and nothing comes back a
// second time.
func TestALossCountsUntilItIsRepaired(t *testing.T) {
	server, dir, seen := bustest.Start(t), t.TempDir(), []byte(nil)
	b := bustest.Connect(t, server, "x")
	open := func() *snapshooter {
		t.Helper()
		own := bustest.Connect(t, server, "snapshots")
		g, err := own.Guard(t.Context(), seen, func(data []byte) error { seen = data; return nil }, func(bus.Loss) {})
		if err != nil {
			t.Fatal(err)
		}
		return &snapshooter{own, g, dir, slog.New(slog.DiscardHandler), time.Now(), map[string]bool{}}
	}
	round := func(k *snapshooter) {
		t.Helper()
		if err := k.round(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	tenants, err := bus.OpenKV(t.Context(), b, contract.Tenants)
	if err != nil {
		t.Fatal(err)
	}
	if err := tenants.Put(t.Context(), "a", access.Tenant{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	k := open()
	round(k)
	if err := bustest.JetStream(t, server.URL()).DeleteKeyValue(t.Context(), string(contract.Tenants)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range tick.Every(ctx, 20*time.Millisecond) {
		if len(k.guard.Losses()) > 0 {
			break
		}
	}
	round(k)
	e, err := tenants.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := tenants.Delete(t.Context(), "a", e.Revision); err != nil {
		t.Fatal(err)
	}
	k.bus.Close()
	k = open() // the next process
	round(k)
	if _, err := tenants.Get(t.Context(), "a"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("what was deleted since: %v", err)
	}
	if losses := k.guard.Losses(); len(losses) != 1 {
		t.Errorf("losses: %v", losses)
	}
	if err := b.Repaired(t.Context(), "KV_"+string(contract.Tenants), time.Now()); err != nil {
		t.Fatal(err)
	}
	k.bus.Close()
	if losses := open().guard.Losses(); len(losses) > 0 {
		t.Errorf("losses after a repair: %v", losses)
	}
}

// The clock of the machine was a year ahead when one snapshot was taken.
func TestASnapshotOfTheFutureEndsNothing(t *testing.T) {
	b := bustest.Connect(t, bustest.Start(t), "x")
	g, err := b.Guard(t.Context(), nil, func([]byte) error { return nil }, func(bus.Loss) {})
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	dir, now := t.TempDir(), time.Now().UTC().Truncate(time.Second)
	k := &snapshooter{b, g, dir, slog.New(slog.NewTextHandler(&logged, nil)), now, map[string]bool{}}
	future := now.AddDate(1, 0, 0)
	const hours = 10
	times := []time.Time{future}
	for h := range hours {
		times = append(times, now.Add(time.Duration(h)*snapshotEvery))
	}
	for _, at := range times {
		if err := k.round(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	snapshots, err := snapshotsIn(dir)
	if err != nil || len(snapshots) != snapshotsKept+1 || !snapshots[snapshotsKept].at.Equal(future) || !snapshots[snapshotsKept-1].at.Equal(times[hours]) {
		t.Errorf("%v, %v", snapshots, err)
	}
	if n := strings.Count(logged.String(), "a time in the future"); n != 1 {
		t.Errorf("logged %d times: %s", n, logged.String())
	}
}
