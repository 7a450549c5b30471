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

// Uploads passes the archive of a folder that a person has uploaded to a function. The error is upload.ErrRefused if
// there is no such archive.
type Uploads func(ctx context.Context, person, hash string, read func(archive io.Reader) error) error

// startPrepared fetches what an attempt begins with in the background, once for each attempt at a time, and then starts
// the attempt. What can never be had is recorded as its end.
func (b *Backend) startPrepared(ctx context.Context, s launch.Setting) {
	dir := b.Attempt(s.Job, s.Attempt.Number)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.preparing[dir] {
		return
	}
	b.preparing[dir] = true
	b.followers.Go(func() {
		err := b.begin(ctx, s)
		switch {
		case errors.Is(err, errChanged), ctx.Err() != nil:
		case errors.Is(err, errNotStaged):
			err = refuse(dir, notStaged(err))
		case errors.Is(err, upload.ErrRefused), errors.Is(err, errContinue):
			err = refuse(dir, unstarted(err))
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.preparing, dir)
		b.troubles[dir] = err
	})
}

// begin starts an attempt once it has what it begins with.
func (b *Backend) begin(ctx context.Context, s launch.Setting) error {
	if b.people == nil {
		if err := b.prepare(ctx, &s); err != nil {
			return err
		}
		return b.start(s)
	}
	archive, err := b.fetchArchive(ctx, s)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	return b.startAs(s, archive)
}

// prepare fetches what an attempt begins with: the data at an address, the uploaded folder, and the checkpoints of the
// job that it continues.
func (b *Backend) prepare(ctx context.Context, s *launch.Setting) error {
	if err := b.stageData(ctx, s); err != nil {
		return err
	}
	if s.Spec.Upload != "" && !exists(b.Upload(s.Job)) {
		if err := b.unpack(ctx, s.Job, s.Spec.User, s.Spec.Upload); err != nil {
			return err
		}
	}
	return b.copyCheckpoints(ctx, *s)
}

// unpack makes the copy of an uploaded folder. The copy has its name only once it is whole.
func (b *Backend) unpack(ctx context.Context, job train.JobID, person, hash string) error {
	part := b.Upload(job) + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("remove half an upload: %w", err)
	}
	if err := makeFolder(part); err != nil {
		return err
	}
	err := b.Uploads(ctx, person, hash, func(archive io.Reader) error { return upload.Unpack(archive, hash, upload.Standard(), part) })
	if err == nil {
		err = os.Rename(part, b.Upload(job))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("fetch the uploaded folder of %s: %w", job, err), os.RemoveAll(part))
	}
	return nil
}
