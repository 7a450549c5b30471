package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/upload"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Uploads passes the archive of an uploaded folder to a function. The error is upload.ErrRefused if there is no such
// archive.
type Uploads func(ctx context.Context, hash string, read func(archive io.Reader) error) error

// startUnpacked fetches the uploaded folder of a job in the background, once for each attempt at a time, and then
// starts the attempt. A folder that can never be had is recorded as the end of the attempt.
func (b *Backend) startUnpacked(ctx context.Context, s launch.Setting) {
	dir := b.Attempt(s.Job, s.Attempt.Number)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unpacking[dir] {
		return
	}
	b.unpacking[dir] = true
	b.followers.Go(func() {
		err := b.unpack(ctx, s.Job, s.Spec.Upload)
		switch {
		case errors.Is(err, upload.ErrRefused):
			err = refuse(dir, train.Exit{Code: launch.CannotStart, Message: err.Error()})
		case err == nil:
			err = b.start(s)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.unpacking, dir)
		b.troubles[dir] = err
	})
}

// unpack makes the copy of an uploaded folder. The copy has its name only once it is whole.
func (b *Backend) unpack(ctx context.Context, job train.JobID, hash string) error {
	part := b.Upload(job) + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("remove half an upload: %w", err)
	}
	if err := makeFolder(part); err != nil {
		return err
	}
	err := b.Uploads(ctx, hash, func(archive io.Reader) error { return upload.Unpack(archive, hash, upload.Standard(), part) })
	if err == nil {
		err = os.Rename(part, b.Upload(job))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("fetch the uploaded folder of %s: %w", job, err), os.RemoveAll(part))
	}
	return nil
}
