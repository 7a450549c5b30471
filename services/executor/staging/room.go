package staging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/installation"
)

// readersName is the folder in a copy with an empty file for each of its readers. The time of the folder is that of the
// last use.
const readersName = "readers"

// inUseName is what is held by who looks which copies are in use, or changes that.
const inUseName = "in-use"

// hold waits until nobody else has a name of the cache: no other call, and no other process.
func (c *Cache) hold(ctx context.Context, name string) (release func(), err error) {
	dir := filepath.Join(c.config.Dir, "locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return installation.Await(ctx, filepath.Join(dir, name))
}

// use returns the newest whole copy of an address and its entry, from now on in use by a reader; the zero values if
// there is none.
func (c *Cache) use(ctx context.Context, url, reader string) (place string, known entry, err error) {
	release, err := c.hold(ctx, inUseName)
	if err != nil {
		return "", entry{}, err
	}
	defer release()
	if place, known = c.newest(url); place != "" {
		err = addReader(place, reader)
	}
	return place, known, err
}

// addReader notes that a copy is used. A reader that is noted already uses it again.
func addReader(place, reader string) error {
	dir := filepath.Join(place, readersName)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, reader), nil, 0o600); err != nil {
		return fmt.Errorf("note that a copy is used: %w", err)
	}
	now := time.Now()
	return os.Chtimes(dir, now, now)
}

// makeRoom deletes the copies that no job reads, those that were not used for the longest time first, until there is
// room for a new one of that size. It returns the room that there is then.
func (c *Cache) makeRoom(ctx context.Context, bytes int64) (room int64) {
	release, err := c.hold(ctx, inUseName)
	if err != nil {
		return 0
	}
	defer release()
	type copied struct {
		place string
		used  time.Time
		bytes int64
	}
	var idle []copied
	room = c.config.Limit
	places, _ := filepath.Glob(filepath.Join(c.config.Dir, "*-*"))
	for _, place := range places {
		size := read(place).bytes()
		room -= size
		if !c.inUse(place) {
			idle = append(idle, copied{place, lastUse(place), size})
		}
	}
	slices.SortFunc(idle, func(x, y copied) int { return cmp.Or(x.used.Compare(y.used), cmp.Compare(x.place, y.place)) })
	for _, old := range idle {
		if bytes <= room {
			break
		}
		// Without its entry it is no copy, should the rest not be deleted.
		err := os.Remove(filepath.Join(old.place, entryName))
		if err == nil || errors.Is(err, os.ErrNotExist) {
			_ = os.RemoveAll(old.place) // what is left is deleted the next time
			room += old.bytes
		}
	}
	return room
}

// inUse says whether a reader of a copy still runs. Readers that have ended are forgotten.
func (c *Cache) inUse(place string) bool {
	dir := filepath.Join(place, readersName)
	used := lastUse(place)
	readers, _ := os.ReadDir(dir)
	for _, r := range readers {
		if c.config.Reads(r.Name()) {
			return true
		}
		_ = os.Remove(filepath.Join(dir, r.Name())) // else it is looked at again
	}
	_ = os.Chtimes(dir, used, used)
	return false
}

func lastUse(place string) time.Time {
	if info, err := os.Stat(filepath.Join(place, readersName)); err == nil {
		return info.ModTime()
	}
	return time.Time{}
}
