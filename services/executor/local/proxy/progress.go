package proxy

import (
	"bytes"
	"encoding/csv"
	"io"
	"math"
	"os"
	"sync"

	"github.com/switchyard-dl/switchyard/libs/joblog/progress"
)

// mostWaiting bounds the reports that wait for the agent; how far the training is now is not added to more.
const mostWaiting = 100

// progressReader finds out how far a training is from its output or its files.
type progressReader struct {
	pattern *progress.Pattern
	names   progress.Names
	tables  tails
	boards  tails
	headers map[string][]string
	// mark is the file that says that the job's epochs count from 0.
	mark string

	mu      sync.Mutex
	tracker progress.Tracker
	news    bool
}

// newProgressReader returns the reader of a launch. A pattern is checked when its job is admitted.
func newProgressReader(p *Spec) *progressReader {
	r := &progressReader{names: p.Names, headers: map[string][]string{}, mark: p.FromZero, tables: tails{Sight: p.Sight, patterns: p.Tables}, boards: tails{Sight: p.Sight, patterns: p.Boards}}
	if pattern, err := progress.ParsePattern(p.Pattern); p.Pattern != "" && err == nil {
		r.pattern = &pattern
	}
	if p.FromZero != "" {
		_, err := os.Lstat(p.FromZero)
		r.tracker.FromZero = err == nil
	}
	r.tables.begin()
	r.boards.begin()
	return r
}

// add takes a point, and passes on the epoch that it ends.
func (r *progressReader) add(p progress.Point, pass func(progress.Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.tracker.FromZero
	if ended, ok := r.tracker.Add(p); ok {
		pass(ended)
	}
	if r.tracker.FromZero && !before && r.mark != "" {
		_ = os.WriteFile(r.mark, nil, 0o600) // without it, the next attempt counts one epoch less
	}
	r.news = true
}

// line reads a line of output.
func (r *progressReader) line(text string, pass func(progress.Report)) {
	if r.pattern == nil {
		return
	}
	if p, ok := r.pattern.Line(text); ok {
		r.add(p, pass)
	}
}

// files reads what the files have got since the last call.
func (r *progressReader) files(pass func(progress.Report)) {
	r.tables.next(func(path string, text []byte) int64 {
		end := bytes.LastIndexByte(text, '\n') + 1
		rows := csv.NewReader(bytes.NewReader(text[:end]))
		rows.FieldsPerRecord, rows.LazyQuotes = -1, true
		for {
			row, err := rows.Read()
			if err == io.EOF {
				return int64(end)
			}
			if p, ok := r.names.Row(r.header(path), row); err == nil && ok {
				r.add(p, pass)
			}
		}
	})
	r.boards.next(func(_ string, text []byte) int64 {
		used := int64(0)
		for used < int64(len(text)) {
			data, size, err := progress.NextRecord(text[used:])
			if err != nil {
				return math.MaxInt64 // this is no event file
			}
			if size == 0 {
				break
			}
			used += size
			step, scalars := progress.Scalars(data)
			if len(scalars) == 0 {
				continue
			}
			scalars["step"] = float64(step)
			if p, ok := progress.Named(r.names.Apply(scalars)); ok {
				r.add(p, pass)
			}
		}
		return used
	})
}

// header returns the names of the columns of a table.
func (r *progressReader) header(path string) []string {
	if r.headers[path] == nil {
		f, err := r.tables.open(path)
		if err != nil {
			return nil
		}
		defer func() { _ = f.Close() }()
		if first, err := csv.NewReader(io.LimitReader(f, tailSize)).Read(); err == nil {
			r.headers[path] = first
		}
	}
	return r.headers[path]
}

// now returns how far the training is; false without news.
func (r *progressReader) now() (progress.Report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.news {
		return progress.Report{}, false
	}
	r.news = false
	return r.tracker.Now()
}

// last returns the last epoch of a program that ended well.
func (r *progressReader) last() (progress.Report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tracker.Close()
}

// tailSize is how much of a file is read at once.
const tailSize = 1 << 20

// tails reads what is appended to files.
type tails struct {
	Sight
	patterns []string
	offsets  map[string]int64
}

// begin leaves out what the files have already: an earlier attempt wrote it.
func (t *tails) begin() {
	t.offsets = map[string]int64{}
	t.each(func(path string, size int64) { t.offsets[path] = size })
}

func (t *tails) each(with func(path string, size int64)) {
	for _, pattern := range t.patterns {
		for _, name := range t.glob(pattern) {
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
				with(name, info.Size())
			}
		}
	}
}

// next calls with what each file has got, and continues after as much as was used. A file that became shorter is read
// from its beginning.
func (t *tails) next(use func(path string, text []byte) int64) {
	t.each(func(path string, size int64) {
		from := t.offsets[path]
		if size < from && from < math.MaxInt64 {
			from = 0
		}
		if size <= from {
			return
		}
		f, err := t.open(path)
		if err != nil {
			return
		}
		defer func() { _ = f.Close() }()
		text := make([]byte, min(size-from, tailSize))
		n, _ := f.ReadAt(text, from)
		if used := use(path, text[:n]); used < math.MaxInt64-from {
			t.offsets[path] = from + used
		} else {
			t.offsets[path] = math.MaxInt64
		}
	})
}
