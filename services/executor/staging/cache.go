// Package staging fetches the data of jobs from an address into a cache of the node. Jobs with the same address share
// one copy, which is fetched once and asked for again only if its source has changed. It decides neither who may name
// which address nor when a job starts.
package staging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Config says what may be fetched.
type Config struct {
	Terms

	// Dir is the folder of the cache. Several processes may use it.
	Dir string
	// Reads says whether a reader that was named to Fetch still runs: what it reads stays.
	Reads func(reader string) bool
}

// Terms are those of an operator.
type Terms struct {
	// Limit is the size of all that a cache may hold, in bytes.
	Limit int64 `json:"limit"`
	// Policy says which addresses may be reached.
	Policy Policy `json:"policy"`
}

// Cache is the cache of a node, or of a person there.
type Cache struct {
	config Config
	web    *client
}

// New makes a cache; what an earlier one has in the folder stays.
func New(c Config) *Cache { return &Cache{config: c, web: newClient(c.Policy)} }

// Terms returns those of the cache.
func (c *Cache) Terms() Terms { return c.config.Terms }

// entry describes a whole copy. It is written last, so a copy without it is none.
type entry struct {
	URL string `json:"url"`
	// Version tells one state of the source from another: an ETag, or times and sizes.
	Version string          `json:"version"`
	Files   map[string]file `json:"files"`
}

// file is a file of a copy as it was written: another size or time shows that a job has changed it.
type file struct {
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified"`
	SHA256   string    `json:"sha256"`
}

const entryName = "entry.json"

// ErrNever is wrapped by errors that another try cannot mend.
var ErrNever = errors.New("it cannot be staged")

// Fetch returns the folder with a copy of the data at an address, which stays until the reader, a file name, has ended.
// It calls report with how far it is; the last call tells the whole size, and whether a copy was there already.
func (c *Cache) Fetch(ctx context.Context, url, reader string, report func(train.Staging)) (folder string, err error) {
	from, err := c.web.source(url)
	if err != nil {
		return "", err
	}
	shown, _, _ := strings.Cut(url, "?") // a signature may follow
	release, err := c.hold(ctx, train.Hash(url)[:16])
	if err != nil {
		return "", fmt.Errorf("wait for %s: %w", shown, err)
	}
	defer release()
	place, known, err := c.use(ctx, url, reader)
	if err != nil {
		return "", err
	}
	listing, err := from.list(ctx, known.Version)
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", shown, err)
	}
	if listing.unchanged || known.Version != "" && known.Version == listing.version {
		bytes := known.bytes()
		report(train.Staging{URL: shown, Bytes: bytes, Total: bytes, Cached: true})
		return filepath.Join(place, folderName), nil
	}
	p := &progress{now: train.Staging{URL: shown, Total: listing.bytes()}, report: report, makeRoom: func(bytes, ahead int64) (int64, error) { return c.makeRoom(ctx, url, bytes, ahead) }}
	defer func() { err = errors.Join(err, c.giveBack(url)) }()
	if p.room, err = p.makeRoom(listing.bytes(), 0); err != nil {
		return "", fmt.Errorf("make room for %s: %w", shown, err)
	}
	if place, err = c.copy(ctx, from, listing, url, reader, p); err != nil {
		return "", fmt.Errorf("fetch %s: %w", shown, err)
	}
	p.now.Total = p.now.Bytes
	report(p.now)
	return filepath.Join(place, folderName), nil
}

const folderName = "data"

// nameOfURL begins the names of the folders with copies of an address.
func (c *Cache) nameOfURL(url string) string {
	return filepath.Join(c.config.Dir, train.Hash(url)[:16])
}

// newest returns the folder of the newest whole copy of an address and its entry; the zero values if there is none.
func (c *Cache) newest(url string) (place string, newest entry) {
	var at time.Time
	places, _ := filepath.Glob(c.nameOfURL(url) + "-*")
	for _, candidate := range places {
		info, err := os.Stat(filepath.Join(candidate, entryName))
		if err != nil || !info.ModTime().After(at) {
			continue
		}
		if e := read(candidate); e.URL == url {
			place, newest, at = candidate, e, info.ModTime()
		}
	}
	return place, newest
}

// read returns the entry of a copy if all its files are as they were written, else the zero value.
func read(place string) (e entry) {
	text, err := os.ReadFile(filepath.Join(place, entryName))
	if err != nil || json.Unmarshal(text, &e) != nil {
		return entry{}
	}
	for name, f := range e.Files {
		info, err := os.Lstat(filepath.Join(place, folderName, filepath.FromSlash(name)))
		if err != nil || info.Size() != f.Bytes || !info.ModTime().Equal(f.Modified) {
			return entry{}
		}
	}
	return e
}

func (e entry) bytes() (sum int64) {
	for _, f := range e.Files {
		sum += f.Bytes
	}
	return sum
}

// copy makes a new copy for a reader and returns its folder. Copies of other contents stay: jobs may be reading them.
func (c *Cache) copy(ctx context.Context, from source, l listing, url, reader string, p *progress) (place string, err error) {
	if l.bytes() > p.room {
		return "", tooLarge(l.bytes(), p.room)
	}
	part := c.nameOfURL(url) + partSuffix
	e, err := c.fill(ctx, from, l, part, p)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(part))
	}
	e.URL = url
	place = c.nameOfURL(url) + "-" + e.content()[:16]
	text, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	release, err := c.hold(ctx, inUseName)
	if err != nil {
		return "", err
	}
	defer release()
	if there := read(place); there.URL == url { // the same content under another version
		there.Version = e.Version
		if text, err = json.Marshal(there); err != nil {
			return "", fmt.Errorf("encode: %w", err)
		}
		return place, errors.Join(addReader(place, reader), os.RemoveAll(part), c.giveBack(url), installation.WriteFile(filepath.Join(place, entryName), text))
	}
	if err := errors.Join(addReader(part, reader), installation.WriteFile(filepath.Join(part, entryName), text)); err != nil {
		return "", err
	}
	// A damaged copy may be there. The room of the new one must not count twice.
	return place, errors.Join(os.RemoveAll(place), os.Rename(part, place), c.giveBack(url))
}

// content names the contents of a copy.
func (e entry) content() string {
	text := &strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(e.Files)) {
		fmt.Fprintf(text, "%q %s\n", name, e.Files[name].SHA256)
	}
	return train.Hash(text.String())
}

// fill fetches all files of a listing into a new folder.
func (c *Cache) fill(ctx context.Context, from source, l listing, part string, p *progress) (entry, error) {
	e := entry{Version: l.version, Files: map[string]file{}}
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(filepath.Join(part, folderName), 0o755)); err != nil {
		return e, err
	}
	for _, item := range l.items {
		written, err := c.write(ctx, from, item, filepath.Join(part, folderName, filepath.FromSlash(item.name)), p)
		if err != nil {
			return e, err
		}
		e.Files[item.name] = written
	}
	return e, nil
}

// write fetches one file. It is read-only: jobs share it.
func (c *Cache) write(ctx context.Context, from source, item item, path string, p *progress) (file, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return file{}, err
	}
	in, err := from.open(ctx, item)
	if err != nil {
		return file{}, err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
	if err != nil {
		return file{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, sum, p), in)
	if item.bytes > 0 && err == nil && n != item.bytes {
		err = fmt.Errorf("%s: %d of %d bytes came: %w", item.name, n, item.bytes, io.ErrUnexpectedEOF)
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return file{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return file{}, err
	}
	return file{Bytes: n, Modified: info.ModTime(), SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// progress counts what was fetched, and ends a fetch that takes more room than there is and can be made.
type progress struct {
	now      train.Staging
	report   func(train.Staging)
	reported int64
	// room is reserved. A source may send more than it has listed, or have listed no size.
	room     int64
	makeRoom func(bytes, ahead int64) (room int64, err error)
}

// reportEach is how many bytes there are between two reports.
const reportEach = 4 << 20

// Write implements io.Writer.
func (p *progress) Write(b []byte) (int, error) {
	p.now.Bytes += int64(len(b))
	if p.now.Bytes > p.room {
		var err error
		if p.room, err = p.makeRoom(p.now.Bytes, p.now.Bytes/8+reportEach); err != nil {
			return 0, err
		}
	}
	if p.now.Bytes > p.room {
		return 0, tooLarge(p.now.Bytes, p.room)
	}
	if p.now.Bytes-p.reported >= reportEach {
		p.reported = p.now.Bytes
		p.report(p.now)
	}
	return len(b), nil
}

func tooLarge(bytes, room int64) error {
	const mib = 1 << 20
	return fmt.Errorf("%w: it has %d MiB or more, and the node's cache has room for %d MiB: executor.data_limit is its size, and jobs read or fetch the rest", ErrNever, bytes/mib, max(room, 0)/mib)
}
