package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
)

// Forget removes the private files of an attempt that is over, with its token. The log stays.
func (b *Backend) Forget(_ context.Context, a train.Attempt) error {
	dir := b.Attempt(a.Job, a.Number)
	b.mu.Lock()
	delete(b.stopAsked, dir)
	delete(b.followed, dir)
	delete(b.troubles, dir)
	b.mu.Unlock()
	if b.launched(a.Job, a.Number) {
		if err := b.people.launcher.Forget(a.Job, a.Number); err != nil {
			return fmt.Errorf("forget attempt %d of %s: %w", a.Number, a.Job, err)
		}
	}
	_ = b.bounds.Groups.Of(a.Name()).Remove() // its supervisor did, unless it was killed
	// The folder loses its name in one step: a supervisor that comes late must never find the launch without the
	// claim.
	away := filepath.Join(filepath.Dir(dir), forgottenPrefix+filepath.Base(dir))
	if err := os.RemoveAll(away); err != nil {
		return fmt.Errorf("remove %s: %w", away, err)
	}
	if err := os.Rename(dir, away); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	if err := os.RemoveAll(away); err != nil {
		return fmt.Errorf("remove %s: %w", away, err)
	}
	return nil
}

// forgottenPrefix begins the name of an attempt's folder while it is removed; Find ignores it.
const forgottenPrefix = ".forgotten-"

// ForgetAll removes the private files of every attempt of a job that ended long ago. Its log, work and snapshots
// stay.
func (b *Backend) ForgetAll(ctx context.Context, job train.JobID) error {
	dir := filepath.Join(b.Job(job), attemptsName)
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
	return errors.Join(append(errs, os.RemoveAll(dir))...)
}

// Tidy removes what a killed executor left half made or half removed. Only the executor that owns the data folder may
// call it, before anything else.
func Tidy(dataDir string) error {
	var errs []error
	jobs := filepath.Join(dataDir, "jobs")
	for _, pattern := range []string{probePrefix + "*", "*/" + attemptsName + "/" + forgottenPrefix + "*"} {
		left, err := fs.Glob(os.DirFS(jobs), pattern)
		errs = append(errs, err)
		for _, dir := range left {
			errs = append(errs, os.RemoveAll(filepath.Join(jobs, dir)))
		}
	}
	return errors.Join(errs...)
}

// Find lists the attempts that were started on this machine and not forgotten yet.
func (b *Backend) Find(context.Context) ([]launch.Found, error) {
	jobs, err := os.ReadDir(filepath.Join(b.DataDir, "jobs"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list attempts: %w", err)
	}
	var found []launch.Found
	for _, job := range jobs {
		id := train.JobID(job.Name())
		numbers, err := os.ReadDir(filepath.Join(b.Job(id), attemptsName))
		if err != nil {
			continue // the job was never started here
		}
		for _, n := range numbers {
			number, err := strconv.Atoi(n.Name())
			if err != nil {
				continue
			}
			if s, err := status(b.Attempt(id, number)); err == nil && s.Phase != launch.Absent {
				found = append(found, launch.Found{Job: id, Number: number, Phase: s.Phase})
			}
		}
	}
	if b.people == nil {
		return found, nil
	}
	theirs, err := b.findLaunched()
	return append(found, theirs...), err
}
