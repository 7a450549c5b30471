package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/busserver/backup"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// snapshooter runs beside a bus: it takes snapshots of the buckets, and puts back what a lost bucket held.
type snapshooter struct {
	bus   *bus.Bus
	guard *bus.Guard
	dir   string
	log   *slog.Logger
	// first is when the first snapshot is due.
	first time.Time
	// ahead has the snapshots of a wrong clock that were logged.
	ahead map[string]bool
}

// keepEvery is how often the snapshooter looks for losses.
const keepEvery = 2 * time.Second

// keep works until ctx ends. tell gets each loss once.
func keep(ctx context.Context, common run.Common, log *slog.Logger, tell func(bus.Loss)) error {
	b, err := bus.Connect(ctx, bus.Config{URL: common.NATS, Here: common.Here, Keys: common.KeysDir(), Name: "snapshots", Log: log})
	if err != nil {
		return err
	}
	defer b.Close()
	seen := filepath.Join(common.DataDir, run.SeenFolder, "bus.json")
	dir := filepath.Join(common.DataDir, snapshotsFolder)
	if err := errors.Join(os.MkdirAll(filepath.Dir(seen), 0o700), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	past, err := os.ReadFile(seen)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	g, err := b.Guard(ctx, past, func(data []byte) error { return installation.WriteFile(seen, data) }, tell)
	if err != nil {
		return err
	}
	k := &snapshooter{b, g, dir, log, time.Now().Add(firstSnapshot), map[string]bool{}}
	for now := range tick.Every(ctx, keepEvery) {
		if err := k.round(ctx, now); err != nil && ctx.Err() == nil {
			log.Warn("buckets are not kept", "error", err)
		}
	}
	return nil
}

// round puts back what was lost, and takes a snapshot if it is time.
func (k *snapshooter) round(ctx context.Context, now time.Time) error {
	snapshots, err := k.until(now)
	if err != nil {
		return err
	}
	for _, l := range k.guard.Losses() {
		if bucket, is := strings.CutPrefix(l.Stream, "KV_"); is && !l.Gone {
			if err := k.putBack(ctx, bucket, l, snapshots); err != nil {
				return err
			}
		}
	}
	// What is damaged must not take the place of what is whole.
	damaged := k.bus.Ready() != nil || len(k.guard.Losses()) > 0
	due := k.first
	if len(snapshots) > 0 {
		due = snapshots[len(snapshots)-1].at.Add(snapshotEvery)
	}
	if damaged || now.Before(due) {
		return nil
	}
	if _, err := backup.Write(ctx, k.bus, filepath.Join(k.dir, now.UTC().Format(snapshotForm)), now, isBucket); err != nil {
		return err
	}
	for _, old := range snapshots[:max(len(snapshots)+1-snapshotsKept, 0)] {
		if err := os.Remove(old.path); err != nil {
			return err
		}
	}
	return nil
}

// until lists the snapshots up to now. The clock of the machine may have been ahead when one was taken, at the boot for
// instance: the next one must not wait for that time. A clock that was corrected by less than an interval does no harm.
func (k *snapshooter) until(now time.Time) ([]snapshot, error) {
	all, err := snapshotsIn(k.dir)
	if err != nil {
		return nil, err
	}
	known := len(all)
	for ; known > 0 && all[known-1].at.After(now.Add(snapshotEvery)); known-- {
		if late := all[known-1].path; !k.ahead[late] {
			k.ahead[late] = true
			k.log.Warn("a snapshot has a time in the future and is left out: the clock was wrong when it was taken. Delete it if its content is of no use", "snapshot", late, "now", now)
		}
	}
	return all[:known], nil
}

// putBack restores a bucket that was made again, once. A person has to know that it may lack what was written since the
// snapshot, so the loss counts until `repair`.
func (k *snapshooter) putBack(ctx context.Context, bucket string, l bus.Loss, snapshots []snapshot) error {
	older := before(snapshots, l.At)
	if len(older) == 0 {
		return nil // `repair` can only make its loss known
	}
	if was, err := k.bus.WasPutBack(ctx, l); was || err != nil {
		return err
	}
	put, err := putBack(ctx, k.bus, bucket, older)
	if err != nil {
		return err
	}
	k.log.Error("a bucket was lost, and was restored from a snapshot: what was written since is lost", "bucket", bucket, "snapshot", put.from, "records", put.records, "unusable", put.unusable)
	return k.bus.PutBackAfter(ctx, l)
}

// restored is what came back of a bucket.
type restored struct {
	// from is the snapshot that was read to its end, unusable says why newer ones were not. What could be read of those
	// came back, too.
	from     string
	records  int
	unusable error
}

// putBack writes what a bucket lacks from the first one of the snapshots that can be read.
func putBack(ctx context.Context, b *bus.Bus, bucket string, newestFirst []snapshot) (r restored, err error) {
	for _, s := range newestFirst {
		records, err := backup.PutBack(ctx, b, s.path, bucket)
		r.records += records
		if err == nil {
			r.from = s.path
			return r, nil
		}
		r.unusable = errors.Join(r.unusable, fmt.Errorf("%s: %w", s.path, err))
		if ctx.Err() != nil {
			break
		}
	}
	return r, fmt.Errorf("no snapshot of bucket %s can be read to its end, %d records came back: %w", bucket, r.records, r.unusable)
}

// before returns the snapshots that are older than a loss, the newest first.
func before(snapshots []snapshot, loss time.Time) []snapshot {
	var older []snapshot
	for _, s := range slices.Backward(snapshots) {
		if !s.at.After(loss) {
			older = append(older, s)
		}
	}
	return older
}

type snapshot struct {
	path string
	at   time.Time
}

// snapshotsIn lists the snapshots in a folder, the oldest first.
func snapshotsIn(dir string) ([]snapshot, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var list []snapshot
	for _, e := range entries {
		if at, err := time.Parse(snapshotForm, e.Name()); err == nil {
			list = append(list, snapshot{filepath.Join(dir, e.Name()), at})
		}
	}
	slices.SortFunc(list, func(x, y snapshot) int { return x.at.Compare(y.at) })
	return list, nil
}

// keepLogged is keep, whose end concerns no job.
func keepLogged(ctx context.Context, common run.Common, log *slog.Logger, tell func(bus.Loss)) {
	if err := keep(ctx, common, log, tell); err != nil && ctx.Err() == nil {
		log.Error("no snapshots of the buckets are taken", "error", err)
	}
}
