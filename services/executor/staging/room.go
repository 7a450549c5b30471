package staging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	path := c.lock(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return installation.Await(ctx, path)
}

func (c *Cache) lock(name string) string { return filepath.Join(c.config.Dir, "locks", name) }

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

// reservedSuffix ends the name of a file with the size for which a fetch under way has room. It lies beside the parts
// of the copy, and counts as long as the fetch holds the lock of its address: a dead process reserves nothing.
const reservedSuffix = ".reserved"

const partSuffix = ".part"

// makeRoom deletes the copies that no job reads, those that were not used for the longest time first, until a copy of
// an address has room for a number of bytes. It reserves them for the caller, and up to ahead more if that much is
// free. It returns the size that it has reserved, or the room that there is if that is less than bytes.
func (c *Cache) makeRoom(ctx context.Context, url string, bytes, ahead int64) (room int64, err error) {
	release, err := c.hold(ctx, inUseName)
	if err != nil {
		return 0, err
	}
	defer release()
	others, err := c.reserved(url)
	if err != nil {
		return 0, err
	}
	copies, idle := c.copies()
	room = c.config.Limit - others - copies
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
	if bytes > room {
		return room, nil
	}
	room = min(room, bytes+ahead)
	return room, os.WriteFile(c.nameOfURL(url)+reservedSuffix, []byte(strconv.FormatInt(room, 10)), 0o600)
}

// copied is a copy that no job reads.
type copied struct {
	place string
	used  time.Time
	bytes int64
}

// copies returns the size of all copies, and lists those that no job reads: first those that were not used for the
// longest time.
func (c *Cache) copies() (sum int64, idle []copied) {
	places, _ := filepath.Glob(filepath.Join(c.config.Dir, "*-*"))
	for _, place := range places {
		size := read(place).bytes()
		sum += size
		if !c.inUse(place) {
			idle = append(idle, copied{place, lastUse(place), size})
		}
	}
	slices.SortFunc(idle, func(x, y copied) int { return cmp.Or(x.used.Compare(y.used), cmp.Compare(x.place, y.place)) })
	return sum, idle
}

// reserved returns what is reserved for fetches of other addresses. It removes what dead processes have left.
func (c *Cache) reserved(url string) (sum int64, err error) {
	files, _ := filepath.Glob(filepath.Join(c.config.Dir, "*"+reservedSuffix))
	for _, path := range files {
		name := strings.TrimSuffix(path, reservedSuffix)
		if name == c.nameOfURL(url) {
			continue
		}
		release, err := installation.Try(c.lock(filepath.Base(name)))
		if err != nil {
			return 0, err
		}
		if release != nil {
			err := errors.Join(os.RemoveAll(name+partSuffix), os.RemoveAll(path))
			release()
			if err != nil {
				return 0, fmt.Errorf("remove half a copy: %w", err)
			}
			continue
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		bytes, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read what is reserved: %w", err)
		}
		sum += bytes
	}
	return sum, nil
}

// giveBack ends what is reserved for a copy that is whole, or will not be made.
func (c *Cache) giveBack(url string) error { return os.RemoveAll(c.nameOfURL(url) + reservedSuffix) }

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
