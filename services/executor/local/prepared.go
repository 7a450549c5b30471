package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/local/prepare"
)

// startPrepared fetches what an attempt begins with in the background, once for each attempt at a time, and then starts
// the attempt. What can never be had is recorded as its end.
func (b *Backend) startPrepared(ctx context.Context, s launch.Setting) {
	folder := b.folder(s.Attempt)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.preparing[folder] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	b.preparing[folder] = cancel
	b.followers.Go(func() {
		defer cancel()
		err := b.begin(ctx, s)
		if end := prepare.Refused(err); end != nil && ctx.Err() == nil {
			err = folder.Refuse(*end)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.preparing, folder)
		b.troubles[folder] = err
	})
}

// endPreparation ends the fetch for an attempt that will not be started. It may wait for another one, which takes long.
func (b *Backend) endPreparation(folder attempt.Folder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cancel := b.preparing[folder]; cancel != nil {
		cancel()
	}
}

// begin starts an attempt once it has what it begins with.
func (b *Backend) begin(ctx context.Context, s launch.Setting) error {
	if b.people == nil {
		if err := b.Prepare(ctx, &s); err != nil {
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

// fetchArchive keeps the archive of an uploaded folder in a file without a name.
func (b *Backend) fetchArchive(ctx context.Context, s launch.Setting) (*os.File, error) {
	if s.Spec.Upload == "" {
		return nil, nil
	}
	f, err := os.CreateTemp(b.Attempt(s.Job, s.Attempt.Number), ".upload.*")
	if err != nil {
		return nil, fmt.Errorf("fetch the uploaded folder of %s: %w", s.Job, err)
	}
	err = errors.Join(os.Remove(f.Name()), b.Uploads(ctx, s.Spec.User, s.Spec.Upload, func(archive io.Reader) error {
		_, err := io.Copy(f, archive)
		return err
	}))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fetch the uploaded folder of %s: %w", s.Job, err), f.Close())
	}
	return f, nil
}
