package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/local/attempt"
)

// The bounds of such reports are those of the job API and of the library's queue.
const (
	maxUnreported      = 2000
	maxUnreportedBytes = 64 << 10
	maxUnreportedEpoch = 1_000_000
)

// reportTimeout bounds how long an agent may take to answer.
const reportTimeout = 2500 * time.Millisecond

// unreported is the content of a file: a request to the job API. A field that is not of its request is absent.
type unreported struct {
	Path string          `json:"path"`
	Body json.RawMessage `json:"body"`
}

// HandOver gives the agent at an address what the code of an ended attempt could not report, in order. It works in the
// background: a busy agent takes minutes for thousands of reports. It returns what the agent has still to take; nil if
// nothing is left. The calls for an attempt follow each other.
func (b *Backend) HandOver(ctx context.Context, a train.Attempt, agent string) (*train.Unreported, error) {
	busy := b.isHandingOver(a)
	dir, files, err := openReports(b.LayoutOf(a.Job).Attempt(a.Job, a.Number))
	if err != nil || dir == nil {
		return nil, err
	}
	if busy {
		return unreportedIn(dir, files), dir.Close()
	}
	token, err := os.ReadFile(b.folder(a).Token())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("read the token of an attempt: %w", err), dir.Close())
	}
	if err := b.dropOthers(a, dir, files); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	left := unreportedIn(dir, files)
	if left == nil || agent == "" {
		return left, dir.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handingOver[b.folder(a)] = true
	b.followers.Go(func() {
		defer func() { _ = dir.Close() }()
		all := handOver(ctx, dir, files, agent, string(token))
		b.mu.Lock()
		delete(b.handingOver, b.folder(a))
		changed := b.changed
		b.mu.Unlock()
		if all {
			changed(a.Job)
		}
	})
	return left, nil
}

// isHandingOver reports whether the reports of an attempt are on their way.
func (b *Backend) isHandingOver(a train.Attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.handingOver[b.folder(a)]
}

// handOver posts reports in order, and removes those that the agent has taken. It returns false if one is left.
func handOver(ctx context.Context, dir *os.Root, files []fs.DirEntry, agent, token string) (all bool) {
	for _, f := range files {
		path := filepath.Join(attempt.Unreported, f.Name())
		r, ok := readUnreported(dir, path)
		if ok && (!post(ctx, agent, token, r) || dir.Remove(path) != nil) {
			return false
		}
	}
	return true
}

// unreportedIn returns what the reports in files say; nil if there are none.
func unreportedIn(dir *os.Root, files []fs.DirEntry) (left *train.Unreported) {
	for _, f := range files {
		if r, ok := readUnreported(dir, filepath.Join(attempt.Unreported, f.Name())); ok {
			if left == nil {
				left = &train.Unreported{}
			}
			left.Add(r.says())
		}
	}
	return left
}

// dropOthers removes the files that are no reports.
func (b *Backend) dropOthers(a train.Attempt, dir *os.Root, files []fs.DirEntry) error {
	for _, f := range files {
		path := filepath.Join(attempt.Unreported, f.Name())
		if _, ok := readUnreported(dir, path); ok {
			continue
		}
		// What a user has put there goes with the attempt.
		if err := dir.Remove(path); err != nil && !b.LayoutOf(a.Job).People {
			return fmt.Errorf("remove a report: %w", err)
		}
	}
	return nil
}

// openReports opens the folder of an attempt and lists its reports. It returns nil if there are none. The folder may be
// that of another user. What he has put there leads nowhere else.
func openReports(folder string) (*os.Root, []fs.DirEntry, error) {
	dir, err := os.OpenRoot(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look for reports: %w", err)
	}
	files, err := fs.ReadDir(dir.FS(), attempt.Unreported)
	if err == nil && len(files) > 0 {
		return dir, files[:min(len(files), maxUnreported)], nil
	}
	_ = dir.Close()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("look for reports: %w", err)
	}
	return nil, nil, nil
}

// readUnreported reads a file; false if it holds no report.
func readUnreported(dir *os.Root, path string) (r unreported, ok bool) {
	if strings.HasPrefix(filepath.Base(path), ".") {
		return r, false // it was being written
	}
	f, err := dir.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return r, false
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return r, false
	}
	data, err := io.ReadAll(io.LimitReader(f, maxUnreportedBytes+1))
	if err != nil || len(data) > maxUnreportedBytes {
		return r, false
	}
	ok = json.Unmarshal(data, &r) == nil && strings.HasPrefix(r.Path, "/") && len(r.Body) > 0
	return r, ok
}

// post sends a report; false if it may be taken later.
func post(ctx context.Context, agent, token string, r unreported) bool {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://%s/attempt/%s%s", agent, token, r.Path), bytes.NewReader(r.Body))
	if err != nil {
		return true // nobody can send it
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxUnreportedBytes))
	switch answer.StatusCode {
	case http.StatusNotFound, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return answer.StatusCode < http.StatusInternalServerError
}

// says returns what a report says, as the agent would take it.
func (r unreported) says() train.Unreported {
	var b struct {
		Done       int    `json:"done"`
		EpochsDone int    `json:"epochs_done"`
		EpochStep  int    `json:"epoch_step"`
		Rank       int    `json:"rank"`
		Path       string `json:"path"`
		Outcome    string `json:"outcome"`
	}
	said := train.Unreported{Reports: 1}
	if json.Unmarshal(r.Body, &b) != nil || b.Rank != 0 || min(b.Done, b.EpochsDone, b.EpochStep) < 0 || max(b.Done, b.EpochsDone) > maxUnreportedEpoch {
		return said
	}
	parts := strings.Split(strings.Trim(r.Path, "/"), "/")
	switch what := parts[len(parts)-1]; {
	case parts[0] == "end_epoch":
		said.EpochsDone = b.Done
	case parts[0] == "signal_end":
		said.Ended = "finished"
	case what == "epochs":
		said.EpochsDone = b.EpochsDone
	case what == "checkpoints" && b.Path != "":
		said.Checkpoint, said.CheckpointEpochs, said.CheckpointStep = b.Path, b.EpochsDone, b.EpochStep
	case what == "end" && (b.Outcome == "finished" || b.Outcome == "stopped" || b.Outcome == "failed"):
		said.EpochsDone, said.Ended = b.EpochsDone, b.Outcome
	}
	return said
}
