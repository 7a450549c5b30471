package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/switchyard-dl/switchyard/libs/contract"
)

// transferTimeout bounds one transfer of an upload.
const transferTimeout = 5 * time.Minute

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

// PutUpload stores the archive of a folder under its hash. It stores nothing if the bus has it: equal folders are
// uploaded once.
func (b *Bus) PutUpload(ctx context.Context, hash string, archive io.Reader) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	store, err := b.js.ObjectStore(ctx, contract.Uploads)
	if err != nil {
		return false, fmt.Errorf("open the store of uploads: %w", err)
	}
	known, err := store.GetInfo(ctx, hash)
	switch {
	case err == nil && time.Since(known.ModTime) < UploadKept/2: // it stays until the job of this upload is known
		return false, nil
	case err != nil && !errors.Is(err, jetstream.ErrObjectNotFound):
		return false, fmt.Errorf("look for upload %s: %w", hash, err)
	}
	meta := jetstream.ObjectMeta{Name: hash, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes}}
	if _, err := store.Put(ctx, meta, archive); err != nil {
		return false, fmt.Errorf("upload %s: %w", hash, err)
	}
	return true, nil
}

// GetUpload passes the archive of a folder to a function. It returns ErrNotFound if the bus does not have it.
func (b *Bus) GetUpload(ctx context.Context, hash string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	store, err := b.js.ObjectStore(ctx, contract.Uploads)
	if err != nil {
		return fmt.Errorf("open the store of uploads: %w", err)
	}
	archive, err := store.Get(ctx, hash)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return fmt.Errorf("upload %s: %w", hash, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("get upload %s: %w", hash, err)
	}
	defer func() { _ = archive.Close() }()
	return read(archive)
}

// SweepUploads deletes the folders that were stored longer than UploadKept ago and that a function does not keep.
func (b *Bus) SweepUploads(ctx context.Context, now time.Time, keep func(hash string) (bool, error)) (deleted int, err error) {
	store, err := b.js.ObjectStore(ctx, contract.Uploads)
	if err != nil {
		return 0, fmt.Errorf("open the store of uploads: %w", err)
	}
	all, err := store.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return 0, fmt.Errorf("list the uploads: %w", err)
	}
	for _, o := range all {
		if now.Sub(o.ModTime) <= UploadKept {
			continue
		}
		kept, err := keep(o.Name)
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
