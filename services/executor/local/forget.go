package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/trash"
)

// Forget removes the private files of an attempt that is over, with its token. The log stays.
func (b *Backend) Forget(_ context.Context, a train.Attempt) error {
	folder := b.folder(a)
	dir := folder.Path
	b.mu.Lock()
	delete(b.stopAsked, folder)
	delete(b.followed, folder)
	delete(b.troubles, folder)
	delete(b.stagings, folder)
	b.mu.Unlock()
	if b.launched(a) {
		if err := b.people.launcher.Forget(a.Job, a.Number); err != nil {
			return fmt.Errorf("forget attempt %d of %s: %w", a.Number, a.Job, err)
		}
	}
	_ = b.Bounds.Groups.Of(b.DataDir, a.Name()).Remove() // its supervisor did, unless it was killed
	// The folder loses its name in one step: a supervisor that comes late must never find the launch without the
	// claim.
	return b.Trash.Throw(dir)
}

// Vacate renames the folder that an earlier job with the same id has left. An id is free again once the register has
// forgotten its job, and the next job may be another person's. No id has a dot, so the new name is that of no job.
func (b *Backend) Vacate(job train.JobID) error {
	left, err := os.Stat(b.Output(job))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Rename(b.Job(job), fmt.Sprintf("%s.%d", b.Job(job), left.ModTime().Unix()))
	}
	if err != nil {
		return fmt.Errorf("put the folder of an earlier job %s aside: %w", job, err)
	}
	return nil
}

// ForgetAll removes the private files of every attempt of a job that ended long ago. Its log, work and snapshots
// stay.
func (b *Backend) ForgetAll(ctx context.Context, job train.JobID) error {
	dir := filepath.Join(b.Job(job), installation.AttemptsName)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list the attempts of %s: %w", job, err)
	}
	var errs []error
	for _, e := range entries {
		if number, err := strconv.Atoi(e.Name()); err == nil {
			errs = append(errs, b.Forget(ctx, train.Attempt{Job: job, Number: number}))
		}
	}
	return errors.Join(append(errs, b.Trash.Throw(dir))...)
}

// Tidy removes what a killed executor left half made or half removed. Only the executor that owns the data folder may
// call it, before anything else. Older versions renamed the folders of attempts to .forgotten-N.
func Tidy(dataDir string) error {
	var errs []error
	jobs, removed := filepath.Join(dataDir, "jobs"), trash.In(dataDir)
	for _, pattern := range []string{probePrefix + "*", "*/" + installation.AttemptsName + "/.forgotten-*"} {
		left, err := fs.Glob(os.DirFS(jobs), pattern)
		errs = append(errs, err)
		for _, dir := range left {
			errs = append(errs, removed.Throw(filepath.Join(jobs, dir)))
		}
	}
	return errors.Join(errs...)
}

// Find lists the attempts that were started on this machine and not forgotten yet.
func (b *Backend) Find(context.Context) ([]launch.Found, error) {
	found, err := find(b.Layout, func(a train.Attempt) (launch.Status, error) { return b.folder(a).Status() })
	if err != nil || b.people == nil {
		return found, err
	}
	theirs, err := find(b.people.Layout, b.statusOfLaunched)
	return append(found, theirs...), err
}

// find lists the attempts in a layout that were started, by their status.
func find(l installation.Layout, status func(train.Attempt) (launch.Status, error)) ([]launch.Found, error) {
	jobs, err := os.ReadDir(filepath.Dir(l.Job("x")))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list attempts: %w", err)
	}
	var found []launch.Found
	for _, job := range jobs {
		id := train.JobID(job.Name())
		numbers, err := os.ReadDir(filepath.Join(l.Job(id), installation.AttemptsName))
		if err != nil {
			continue // the job was never started here
		}
		for _, n := range numbers {
			number, err := strconv.Atoi(n.Name())
			if err != nil {
				continue
			}
			if s, err := status(train.Attempt{Job: id, Number: number}); err == nil && s.Phase != launch.Absent {
				found = append(found, launch.Found{Job: id, Number: number, Phase: s.Phase})
			}
		}
	}
	return found, nil
}
