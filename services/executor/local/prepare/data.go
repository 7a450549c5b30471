package prepare

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
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
	"github.com/switchyard-dl/switchyard/services/executor/staging"
)

// errNotStaged is wrapped by the errors of data that could not be fetched.
var errNotStaged = errors.New("data_url")

// stageData gives an attempt the node's copy of the data at the address that its job names.
func (p *Preparer) stageData(ctx context.Context, s *launch.Setting) error {
	address := s.Spec.DataURL
	if address == "" {
		return nil
	}
	if at, err := url.Parse(address); err == nil && at.Scheme == "file" {
		if p.People { // where links may lead is up to his rights; admission has not followed them
			if at.Path, err = filepath.EvalSymlinks(at.Path); err != nil {
				return fmt.Errorf("%w: %w", errNotStaged, err)
			}
			address = at.String()
		}
		if p.Exposed(at.Path, s.Job) {
			return fmt.Errorf("%w: %w: %s %w", errNotStaged, staging.ErrNever, at.Path, errExposed)
		}
	}
	folder, err := p.Data.Fetch(ctx, address, fmt.Sprintf("%s.%d", s.Job, s.Attempt.Number), p.reports(attempt.In(p.Layout, s.Job, s.Attempt.Number)))
	if err != nil {
		return fmt.Errorf("%w: %w", errNotStaged, err)
	}
	if s.Staged, err = filepath.EvalSymlinks(folder); err != nil {
		return fmt.Errorf("%w: %w", errNotStaged, err)
	}
	return nil
}

// reports passes on how far the data of an attempt is. Its record need not follow every piece.
func (p *Preparer) reports(folder attempt.Folder) func(train.Staging) {
	last := time.Time{}
	return func(now train.Staging) {
		if now.Whole() || time.Since(last) >= launch.Later {
			last = time.Now()
			p.Staged(folder, now)
		}
	}
}

// Reader returns the attempt of a name under which data is fetched; false if it is none.
func (p *Preparer) Reader(name string) (attempt.Folder, bool) {
	job, number, _ := strings.Cut(name, ".")
	n, err := strconv.Atoi(number)
	return attempt.In(p.Layout, train.JobID(job), n), err == nil
}

// Reads reports whether an attempt, by the name under which it fetches data, was begun and has not ended.
func (p *Preparer) Reads(name string) bool {
	folder, is := p.Reader(name)
	return is && installation.Exists(folder.Path) && !folder.Ended()
}

// notStaged returns the exit of an attempt whose data could not be fetched.
func notStaged(err error) train.Exit {
	return launch.NotStaged(err.Error(), errors.Is(err, staging.ErrNever))
}
