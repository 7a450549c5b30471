// Package backup writes the streams and buckets of a running bus into a file, and makes a bus from such a file. The
// file is a tar: backup.json, then for each stream NAME.json, its configuration and state, and NAME.s2, the server's
// own snapshot of its messages and consumers; and last complete.json.
package backup

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/installation"
)

// Head is the first entry.
type Head struct {
	Format  int       `json:"format"`
	At      time.Time `json:"at"`
	Version string    `json:"version"`
}

const (
	format       = 1
	headName     = "backup.json"
	completeName = "complete.json"
)

// ErrFile reports that a file is no backup, or not a complete one.
var ErrFile = errors.New("not a complete backup of Switchyard")

// Write writes the chosen streams of a bus to path, which appears once it is complete and on the disk. It replaces a
// file, also one that path is a link to, and nothing else. It returns the names of the streams.
func Write(ctx context.Context, b *bus.Bus, path string, at time.Time, chosen func(stream string) bool) (written []string, err error) {
	path, err = target(path)
	if err != nil {
		return nil, fmt.Errorf("make the backup: %w", err)
	}
	file, err := unfinished(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("make the backup: %w", err)
	}
	defer func() { _ = file.Close(); _ = os.Remove(file.Name()) }()
	out := tar.NewWriter(file)
	names, err := b.Streams(ctx)
	if err == nil {
		err = add(out, headName, Head{format, at.UTC(), build.This().Version})
	}
	for _, name := range names {
		if err == nil && chosen(name) {
			err = writeStream(ctx, b, out, filepath.Dir(path), name)
			written = append(written, name)
		}
	}
	if err == nil {
		err = add(out, completeName, written)
	}
	if err = errors.Join(err, out.Close(), file.Sync()); err != nil {
		return nil, fmt.Errorf("write the backup: %w", err)
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return nil, fmt.Errorf("write the backup: %w", err)
	}
	return written, installation.SyncFolder(filepath.Dir(path))
}

// target follows links to the file that is to be written.
func target(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) && !installation.Exists(path) {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "replace", Path: path, Err: errIrregular}
	}
	return real, err
}

var errIrregular = errors.New("it is there, and is no file")

// unfinishedName begins the names of backups that are being written. Their writers have locked them.
const unfinishedName = ".switchyard-backup."

// unfinished makes the file of a backup in a folder, and removes those of writers that were killed.
func unfinished(dir string) (*os.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), unfinishedName) {
			continue
		}
		left, err := installation.OpenRegular(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // it is another user's, or gone
		}
		if unix.Flock(int(left.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.Remove(left.Name())
		}
		_ = left.Close()
	}
	file, err := os.CreateTemp(dir, unfinishedName+"*")
	if err != nil {
		return nil, err
	}
	// Without a lock, as on some network file systems, nobody removes the file of another.
	_ = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	return file, nil
}

// spoolIn makes a file in a folder that is gone once it is closed, or the process has ended.
func spoolIn(dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, ".switchyard-spool.*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// writeStream adds a stream. A tar wants sizes first, so the snapshot goes to a file of its own before.
func writeStream(ctx context.Context, b *bus.Bus, out *tar.Writer, dir, name string) error {
	spool, err := spoolIn(dir)
	if err != nil {
		return err
	}
	defer spool.Close() //nolint:errcheck // nobody needs it any more
	s, err := b.Snapshot(ctx, name, spool)
	if err != nil {
		return err
	}
	size, err := spool.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := whole(ctx, b, name, s, spool); err != nil {
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := add(out, name+".json", s); err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Name: name + ".s2", Mode: 0o600, Size: size}); err != nil {
		return err
	}
	_, err = io.Copy(out, spool)
	return err
}

// ErrDamaged reports that a server cannot read some messages of a stream.
var ErrDamaged = errors.New("is damaged: some messages cannot be read")

// whole returns ErrDamaged if a snapshot lacks messages that its stream has.
func whole(ctx context.Context, b *bus.Bus, name string, s bus.Snapshot, r io.Reader) error {
	read := map[uint64]bool{}
	if err := each(r, func(h *archive.Header, _ io.Reader) error {
		read[h.Sequence] = true // 0 is that of other entries
		return nil
	}); err != nil {
		return fmt.Errorf("read the snapshot of %s: %w", name, err)
	}
	var state struct {
		Messages int    `json:"messages"`
		Last     uint64 `json:"last_seq"`
	}
	if err := json.Unmarshal(s.State, &state); err != nil {
		return fmt.Errorf("read the state of %s: %w", name, err)
	}
	if len(read) > state.Messages {
		return nil
	}
	// Some may have been deleted while the snapshot was taken.
	first, deleted, err := b.Deleted(ctx, name)
	if err != nil {
		return err
	}
	for _, sequence := range deleted {
		read[sequence] = true
	}
	var lacks []uint64
	for sequence := first; sequence <= state.Last; sequence++ {
		if !read[sequence] {
			lacks = append(lacks, sequence)
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("%s %w: %d, the first under sequence %d", name, ErrDamaged, len(lacks), lacks[0])
	}
	return nil
}

// Verify reads a stream, and returns ErrDamaged if its server cannot read all of it.
func Verify(ctx context.Context, b *bus.Bus, stream string) error {
	spool, err := spoolIn("")
	if err != nil {
		return err
	}
	defer spool.Close() //nolint:errcheck // nobody needs it any more
	s, err := b.Snapshot(ctx, stream, spool)
	if err != nil {
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return whole(ctx, b, stream, s, spool)
}

func add(out *tar.Writer, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

// Read calls f with each stream of a backup, in order. It returns ErrFile if the file is none or was cut off.
func Read(path string, f func(name string, s bus.Snapshot, r io.Reader) error) (Head, error) {
	var head Head
	file, err := os.Open(path)
	if err != nil {
		return head, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	in := tar.NewReader(file)
	var s bus.Snapshot
	for complete := false; ; {
		entry, err := in.Next()
		if errors.Is(err, io.EOF) && complete {
			return head, nil
		}
		if err != nil {
			return head, fmt.Errorf("read %s: %w: %w", path, ErrFile, err)
		}
		name, isStream := strings.CutSuffix(entry.Name, ".s2")
		switch {
		case entry.Name == headName:
			err = json.NewDecoder(in).Decode(&head)
		case entry.Name == completeName:
			complete = true
		case head.Format != format:
			err = fmt.Errorf("%w: format %d", ErrFile, head.Format)
		case isStream:
			err = f(name, s, in)
		default:
			s = bus.Snapshot{}
			err = json.NewDecoder(in).Decode(&s)
		}
		if err != nil {
			return head, fmt.Errorf("read %s: %w", path, err)
		}
	}
}

// Check reads a whole backup and verifies the checksums in it. It returns the number of messages of each stream.
func Check(path string) (head Head, messages map[string]int, err error) {
	messages = map[string]int{}
	head, err = Read(path, func(name string, _ bus.Snapshot, r io.Reader) error {
		return each(r, func(h *archive.Header, _ io.Reader) error {
			if h.Sequence > 0 {
				messages[name]++
			}
			return nil
		})
	})
	return head, messages, err
}

// each calls f with each entry of a snapshot.
func each(r io.Reader, f func(*archive.Header, io.Reader) error) error {
	const block = 64 << 10 // for the small buckets; larger blocks get larger buffers
	in := archive.NewReader(s2.NewReader(r, s2.ReaderAllocBlock(block)))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(h, in)
		}
		if err != nil {
			return err
		}
	}
}

// Restore makes the streams of a backup on a bus that has none of them. It leaves out what agents and executors
// announce again within seconds.
func Restore(ctx context.Context, b *bus.Bus, path string, at time.Time) (Head, error) {
	return Read(path, func(name string, s bus.Snapshot, r io.Reader) error {
		if slices.Contains(announced(), name) {
			return nil
		}
		return b.Restore(ctx, name, s, bus.MarksOfRestored(name, at), r)
	})
}

// announced are the streams in which agents and executors announce themselves. With the old records, those of the
// restored data folder would wait for those of the earlier one.
func announced() []string {
	return []string{"KV_" + string(contract.Nodes), "KV_" + string(contract.Executors)}
}

// PutBack writes those keys of a bucket that a backup has and the bus has not. It returns their number.
func PutBack(ctx context.Context, b *bus.Bus, path, bucket string) (put int, err error) {
	err = values(path, bucket, func(key string, h *archive.Header, r io.Reader) error {
		data, err := io.ReadAll(io.LimitReader(r, h.HeaderSize+h.PayloadSize))
		if err != nil {
			return err
		}
		done, err := b.PutBack(ctx, bucket, key, data[h.HeaderSize:])
		if done {
			put++
		}
		return err
	})
	return put, err
}

// Lacking returns how many keys PutBack would write.
func Lacking(ctx context.Context, b *bus.Bus, path, bucket string) (lacking int, err error) {
	there, err := b.Keys(ctx, bucket)
	if err != nil {
		return 0, err
	}
	err = values(path, bucket, func(key string, _ *archive.Header, _ io.Reader) error {
		if !there[key] {
			lacking++
		}
		return nil
	})
	return lacking, err
}

// values calls f with each key of a bucket that has a value in a backup.
func values(path, bucket string, f func(key string, h *archive.Header, r io.Reader) error) error {
	_, err := Read(path, func(name string, _ bus.Snapshot, r io.Reader) error {
		if name != "KV_"+bucket {
			return nil
		}
		return each(r, func(h *archive.Header, r io.Reader) error {
			key, is := strings.CutPrefix(h.Name, "$KV."+bucket+".")
			if !is || h.PayloadSize == 0 { // a marker: the key was deleted
				return nil
			}
			return f(key, h, r)
		})
	})
	return err
}

// RaiseLast copies a snapshot whose stream then goes on after a sequence: a stream that has lost its newest messages
// must not use their sequences again.
func RaiseLast(r io.Reader, w io.Writer, last uint64) error {
	packed := s2.NewWriter(w)
	out := archive.NewWriter(packed)
	err := each(r, func(h *archive.Header, r io.Reader) error {
		data, err := io.ReadAll(io.LimitReader(r, h.HeaderSize+h.PayloadSize))
		if err != nil {
			return err
		}
		if h.Name == "state.json" && h.Sequence == 0 {
			if data, err = raise(data, last); err != nil {
				return err
			}
			h.PayloadSize = int64(len(data))
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err = out.Write(data)
		return err
	})
	return errors.Join(err, out.Close(), packed.Close())
}

// raise sets the last sequence in the state of a stream.
func raise(state []byte, last uint64) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(state, &all); err != nil {
		return nil, fmt.Errorf("read the state of a stream: %w", err)
	}
	var err error
	if all["last_seq"], err = json.Marshal(last); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
