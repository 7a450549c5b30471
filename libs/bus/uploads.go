package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/contract"
)

// TransferTime bounds one transfer of an upload.
const TransferTime = 5 * time.Minute

// UploadKept is how long a folder stays on the bus at least, so that the job that needs it can be submitted.
const UploadKept = 48 * time.Hour

// chunkBytes is the size of the messages of an upload.
const chunkBytes = 1 << 20

// ensureUploads makes the store of uploaded folders.
func (b *Bus) ensureUploads(ctx context.Context) error {
	_, err := b.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket: contract.Uploads, Description: "folders of submissions, each under its hash", Storage: jetstream.FileStorage,
		MaxBytes: contract.MaxUploadsBytes, Replicas: b.replicas, Compression: true,
	})
	if err != nil {
		return fmt.Errorf("ensure the store of uploads: %w", err)
	}
	return nil
}

func (b *Bus) uploads(ctx context.Context) (jetstream.ObjectStore, error) {
	store, err := b.js.ObjectStore(ctx, contract.Uploads)
	if err != nil {
		return nil, fmt.Errorf("open the store of uploads: %w", b.cause(err))
	}
	return store, nil
}

// uploadName is the name of a folder in the store. Each person has a copy of his own, so who knows the hash of a folder
// does not get what another has uploaded. What comes over the bus itself has no person: its sender has a key.
func uploadName(person, hash string) (string, error) {
	if person == "" {
		return hash, nil
	}
	key, err := access.Key(person)
	return key + "." + hash, err
}

// splitUpload returns the key of the person and the hash in a name.
func splitUpload(name string) (key, hash string) {
	if key, hash, owned := strings.Cut(name, "."); owned {
		return key, hash
	}
	return "", name
}

// PutUpload stores the archive of a person's folder under its hash. It stores nothing if he has uploaded the same one
// before.
func (b *Bus) PutUpload(ctx context.Context, person, hash string, archive io.Reader) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, TransferTime)
	defer cancel()
	name, err := uploadName(person, hash)
	if err != nil {
		return false, fmt.Errorf("upload %s: %w", hash, err)
	}
	store, err := b.uploads(ctx)
	if err != nil {
		return false, err
	}
	known, err := store.GetInfo(ctx, name)
	switch {
	case err == nil && time.Since(known.ModTime) < UploadKept/2: // it stays until the job of this upload is known
		return false, nil
	case err != nil && !errors.Is(err, jetstream.ErrObjectNotFound):
		return false, fmt.Errorf("look for upload %s: %w", name, err)
	}
	meta := jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes}}
	if _, err := store.Put(ctx, meta, fullReader{archive}); err != nil {
		return false, fmt.Errorf("upload %s: %w", name, err)
	}
	return true, nil
}

// fullReader fills each chunk: a connection gives a few kilobytes at a time, and the server syncs its disk for each
// message.
type fullReader struct{ from io.Reader }

// Read implements io.Reader.
func (f fullReader) Read(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var more int
		more, err = f.from.Read(p[n:])
		n += more
	}
	return n, err
}

// HasUpload reports whether a person has uploaded a folder.
func (b *Bus) HasUpload(ctx context.Context, person, hash string) (bool, error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	name, err := uploadName(person, hash)
	if err != nil {
		return false, nil
	}
	store, err := b.uploads(ctx)
	if err == nil {
		_, err = store.GetInfo(ctx, name)
	}
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return false, nil
	}
	return err == nil, err
}

// UploadedBy returns the size of what a person has uploaded.
func (b *Bus) UploadedBy(ctx context.Context, person string) (size int64, err error) {
	ctx, cancel := exchange(ctx)
	defer cancel()
	key, err := access.Key(person)
	if err != nil {
		return 0, err
	}
	store, err := b.uploads(ctx)
	if err != nil {
		return 0, err
	}
	all, err := store.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return 0, fmt.Errorf("list the uploads: %w", b.cause(err))
	}
	for _, o := range all {
		if of, _ := splitUpload(o.Name); of == key {
			size += int64(o.Size)
		}
	}
	return size, nil
}

// GetUpload passes the archive of a person's folder to a function, or that of the same folder which came over the bus:
// admission has seen to it that he may have it. It returns ErrNotFound if the bus has neither.
func (b *Bus) GetUpload(ctx context.Context, person, hash string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, TransferTime)
	defer cancel()
	store, err := b.uploads(ctx)
	if err != nil {
		return err
	}
	name, nameless := uploadName(person, hash)
	if nameless != nil {
		name = hash
	}
	archive, err := store.Get(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) && name != hash {
		archive, err = store.Get(ctx, hash)
	}
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return fmt.Errorf("upload %s: %w", hash, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("get upload %s: %w", hash, err)
	}
	defer func() { _ = archive.Close() }()
	return read(archive)
}

// SweepUploads deletes the folders that were stored longer than UploadKept ago and whose hash a function does not keep,
// and what was left of transfers whose sender was killed.
func (b *Bus) SweepUploads(ctx context.Context, now time.Time, keep func(hash string) (bool, error)) (deleted int, err error) {
	store, err := b.uploads(ctx)
	if err != nil {
		return 0, err
	}
	stream, err := b.js.Stream(ctx, "OBJ_"+contract.Uploads)
	if err != nil {
		return 0, fmt.Errorf("open the store of uploads: %w", err)
	}
	chunks, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunkSubjects+"*")) // before the list: see sweepChunks
	if err != nil {
		return 0, fmt.Errorf("list the parts of uploads: %w", err)
	}
	all, err := store.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return 0, fmt.Errorf("list the uploads: %w", err)
	}
	for _, o := range all {
		delete(chunks.State.Subjects, chunkSubjects+o.NUID)
	}
	if deleted, err = sweepChunks(ctx, stream, now, chunks.State.Subjects); err != nil {
		return deleted, err
	}
	for _, o := range all {
		if now.Sub(o.ModTime) <= UploadKept {
			continue
		}
		_, hash := splitUpload(o.Name)
		kept, err := keep(hash)
		if err != nil {
			return deleted, err
		}
		if kept {
			continue
		}
		if err := store.Delete(ctx, o.Name); err != nil {
			return deleted, fmt.Errorf("delete upload %s: %w", o.Name, err)
		}
		deleted++
	}
	return deleted, nil
}

// chunkSubjects begins the subjects of the chunks of uploads. What follows is the number of the upload.
const chunkSubjects = "$O." + contract.Uploads + ".C."

// sweepChunks deletes the chunks of uploads that no object of a later list names, unless their transfer may go on.
func sweepChunks(ctx context.Context, stream jetstream.Stream, now time.Time, subjects map[string]uint64) (deleted int, err error) {
	for subject := range subjects {
		last, err := stream.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && now.Sub(last.Time) <= 2*TransferTime {
			continue
		}
		if err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
		}
		if err != nil {
			return deleted, fmt.Errorf("delete the part of an upload: %w", err)
		}
		deleted++
	}
	return deleted, nil
}
