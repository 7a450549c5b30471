package local

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// errNotStaged is wrapped by the errors of data that could not be fetched.
var errNotStaged = errors.New("data_url")

// stagings are how far the data of attempts is, by their folders.
type stagings map[string]*progressed

type progressed struct {
	staging train.Staging
	at      time.Time
}

// stageData gives an attempt the node's copy of the data at the address that its job names.
func (b *Backend) stageData(ctx context.Context, s *launch.Setting) error {
	address := s.Spec.DataURL
	if address == "" {
		return nil
	}
	if at, err := url.Parse(address); err == nil && at.Scheme == "file" {
		if b.People { // where links may lead is up to his rights; admission has not followed them
			if at.Path, err = filepath.EvalSymlinks(at.Path); err != nil {
				return fmt.Errorf("%w: %w", errNotStaged, err)
			}
			address = at.String()
		}
		if b.Exposed(at.Path, s.Job) {
			return fmt.Errorf("%w: %w: %s %w", errNotStaged, staging.ErrNever, at.Path, errExposed)
		}
	}
	dir := b.Attempt(s.Job, s.Attempt.Number)
	folder, err := b.Data.Fetch(ctx, address, fmt.Sprintf("%s.%d", s.Job, s.Attempt.Number), func(now train.Staging) { b.reached(dir, now) })
	if err != nil {
		return fmt.Errorf("%w: %w", errNotStaged, err)
	}
	if s.Staged, err = filepath.EvalSymlinks(folder); err != nil {
		return fmt.Errorf("%w: %w", errNotStaged, err)
	}
	return nil
}

// Reads says whether an attempt, by the name under which it fetches data, has not ended.
func (b *Backend) Reads(reader string) bool {
	job, number, _ := strings.Cut(reader, ".")
	n, err := strconv.Atoi(number)
	if err != nil {
		return false
	}
	dir := b.Attempt(train.JobID(job), n)
	b.mu.Lock()
	preparing := b.preparing[dir]
	b.mu.Unlock()
	return preparing || exists(dir) && !exists(filepath.Join(dir, exitName))
}

// reached notes how far the data of an attempt is. The record of the attempt need not follow every piece.
func (b *Backend) reached(dir string, now train.Staging) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.stagings[dir]
	if before == nil || now.Whole() || time.Since(before.at) >= launch.Later {
		b.stagings[dir] = &progressed{now, time.Now()}
		if b.People { // the executor reads it there; without it, people see less
			_ = writeJSON(filepath.Join(dir, stagingName), now, installation.ReplaceShared)
		}
	}
}

// stagingName is the file in the folder of an attempt in which the supervisor of a person says how far the data is.
const stagingName = "staging.json"

// stagingOf returns how far the data of an attempt is; nil without any.
func (b *Backend) stagingOf(job train.JobID, number int) *train.Staging {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.stagings[b.Attempt(job, number)]; p != nil {
		return &p.staging
	}
	if b.people != nil {
		if said, found, err := readJSON[train.Staging](filepath.Join(b.people.Attempt(job, number), stagingName)); err == nil && found {
			return &said
		}
	}
	return nil
}

// notStaged returns the exit of an attempt whose data could not be fetched.
func notStaged(err error) train.Exit {
	return launch.NotStaged(err.Error(), errors.Is(err, staging.ErrNever))
}
