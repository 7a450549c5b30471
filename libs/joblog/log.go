// Package joblog stores the output of a job in one bounded file and reads it by offsets that count all output ever
// written. It does not know where the output comes from, nor who may read it.
package joblog

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// The log of a job is one file that a person can read as it is. Once it has outgrown its bound, it holds the beginning,
// a line that says how much was left out, and the end. A full log is rewritten with half of its end, so on average each
// byte is written at most twice.
const (
	// maxLine bounds a line; a longer line is cut there with a note.
	maxLine = 16 << 10
	// tailBytes is how much of the end a failure report includes.
	tailBytes = 4 << 10
	// MinLimit is the smallest bound: the beginning must hold a line and the mark.
	MinLimit = 8 * maxLine

	markPrefix = "[switchyard: "
	markSuffix = " bytes of output left out here]"
)

// Log appends to the log of a job. Only one process at a time writes it.
type Log struct {
	mu    sync.Mutex
	path  string
	file  *os.File
	limit int64
	shape shape
	tail  []byte
	// lost is set when a write failed (a full disk): the job goes on, its output is dropped.
	lost error
}

// shape is the layout of a log.
type shape struct {
	// head is the length of the beginning, skip the length of the mark after it (0: nothing was left out), dropped the
	// number of bytes left out.
	head, skip, dropped int64
	// size is the length of the file.
	size int64
}

// written returns the number of bytes the job has written in all.
func (s shape) written() int64 { return s.size - s.skip + s.dropped }

// headEnd returns the fixed place in the file where the mark ends, so that it can be found again.
func headEnd(limit int64) int64 { return limit / 4 }

// Open opens a new or existing log that is bounded to limit bytes.
func Open(path string, limit int64) (*Log, error) {
	o := &Log{path: path, limit: max(limit, MinLimit)}
	if err := o.reopen(); err != nil {
		return nil, err
	}
	return o, nil
}

func (o *Log) reopen() error {
	f, err := os.OpenFile(o.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log %s: %w", o.path, err)
	}
	s, err := readShape(f, o.limit)
	if err != nil {
		_ = f.Close()
		return err
	}
	if o.file != nil {
		_ = o.file.Close()
	}
	o.file, o.shape = f, s
	return nil
}

// readShape finds the mark.
func readShape(f *os.File, limit int64) (shape, error) {
	info, err := f.Stat()
	if err != nil {
		return shape{}, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	s := shape{size: info.Size(), head: info.Size()}
	end := headEnd(max(limit, MinLimit))
	if s.size < end {
		return s, nil
	}
	window := make([]byte, min(end, 2*maxLine))
	if _, err := f.ReadAt(window, end-int64(len(window))); err != nil && err != io.EOF {
		return s, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	at := bytes.LastIndex(window, []byte(markPrefix))
	if at < 0 {
		return s, nil
	}
	rest, found := strings.CutSuffix(string(window[at+len(markPrefix):]), markSuffix+"\n")
	digits := strings.TrimLeft(rest, ".")
	dropped, err := strconv.ParseInt(digits, 10, 64)
	if !found || err != nil {
		return s, nil //nolint:nilerr // a line of the job that looks like the beginning of a mark
	}
	s.skip = int64(len(window) - at)
	s.head, s.dropped = end-s.skip, dropped
	return s, nil
}

// mark returns the line that says how much was left out, padded so that it ends at headEnd.
func mark(dropped, length int64) []byte {
	digits := strconv.FormatInt(dropped, 10)
	padding := int(length) - len(markPrefix) - len(digits) - len(markSuffix) - 1
	return []byte(markPrefix + strings.Repeat(".", max(padding, 0)) + digits + markSuffix + "\n")
}

// Write appends whole lines.
func (o *Log) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, p...)
	if excess := len(o.tail) - tailBytes; excess > 0 {
		o.tail = append(o.tail[:0], o.tail[excess:]...)
	}
	n, err := o.file.Write(p)
	o.shape.size += int64(n)
	if o.shape.skip == 0 {
		o.shape.head = o.shape.size
	}
	if err == nil && o.shape.size > o.limit {
		err = o.compact()
	}
	if err != nil {
		o.lost = err
	}
	return len(p), nil
}

// compact rewrites the log with the beginning, the mark and the newest half of the rest.
func (o *Log) compact() error {
	end := headEnd(o.limit)
	s := o.shape
	if s.skip == 0 {
		head, err := lineEndBefore(o.file, end-int64(len(mark(0, 0)))-20)
		if err != nil {
			return err
		}
		s.head, s.skip = head, 0
	}
	tail, err := lineEndBefore(o.file, s.size-o.limit/2)
	if err != nil {
		return err
	}
	s.dropped += tail - s.head - s.skip
	s.skip = end - s.head
	f, err := os.CreateTemp(filepath.Dir(o.path), ".output.*")
	if err != nil {
		return fmt.Errorf("rewrite %s: %w", o.path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer func() { _ = f.Close() }()
	for _, part := range []io.Reader{
		io.NewSectionReader(o.file, 0, s.head), bytes.NewReader(mark(s.dropped, s.skip)), io.NewSectionReader(o.file, tail, s.size-tail),
	} {
		if _, err := io.Copy(f, part); err != nil {
			return fmt.Errorf("rewrite %s: %w", o.path, err)
		}
	}
	if before, err := o.file.Stat(); err == nil {
		_ = f.Chmod(before.Mode().Perm()) // who could read the log still can
	}
	if err := os.Rename(f.Name(), o.path); err != nil {
		return fmt.Errorf("rewrite %s: %w", o.path, err)
	}
	return o.reopen()
}

// lineEndBefore returns the place after the last line end at or before at. Lines are bounded, so one is near.
func lineEndBefore(f *os.File, at int64) (int64, error) {
	window := make([]byte, min(at, 2*maxLine))
	if _, err := f.ReadAt(window, at-int64(len(window))); err != nil && err != io.EOF {
		return 0, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	if i := bytes.LastIndexAny(window, "\n\r"); i >= 0 {
		return at - int64(len(window)) + int64(i) + 1, nil
	}
	return at, nil
}

// Begin writes the line that begins the output of an attempt. The tail then starts after it.
func (o *Log) Begin(header string) {
	_, _ = o.Write([]byte(header + "\n"))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = nil
}

// Written returns the number of bytes the job has written in all.
func (o *Log) Written() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.shape.written()
}

// Rewind removes what was written beyond a total number of bytes, for a writer that was killed before it could record
// its position. Bytes that the log has dropped by then cannot be removed.
func (o *Log) Rewind(written int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := o.shape.size
	if o.shape.skip > 0 {
		end -= o.shape.head + o.shape.skip
	}
	excess := min(o.shape.written()-written, end)
	if excess <= 0 {
		return nil
	}
	if err := o.file.Truncate(o.shape.size - excess); err != nil {
		return fmt.Errorf("rewind %s: %w", o.path, err)
	}
	return o.reopen()
}

// Tail returns the end of what was written since the log was opened, with control characters escaped.
func (o *Log) Tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Escape(o.tail)
}

// Close syncs and closes the log. It returns the log's first error, if any.
func (o *Log) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.file.Sync(); err != nil && o.lost == nil {
		o.lost = err
	}
	if err := o.file.Close(); err != nil && o.lost == nil {
		o.lost = err
	}
	return o.lost
}

// Escape makes output fit for messages: it spells out control and text-direction characters and replaces broken UTF-8.
func Escape(raw []byte) string {
	var b strings.Builder
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&b, "\\x%02x", raw[0])
		case r < 0x20, r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		raw = raw[size:]
	}
	return b.String()
}

// Lines copies a process's output into a log in whole lines, each with the prefix; it cuts lines that are too long.
type Lines struct {
	to      io.Writer
	prefix  string
	pending []byte
	cut     int
}

// NewLines returns a Lines that writes one line at a time to a writer.
func NewLines(to io.Writer, prefix string) *Lines { return &Lines{to: to, prefix: prefix} }

// Write takes output as it comes. A carriage return ends a line too: progress bars would otherwise be one endless line.
func (l *Lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexAny(p, "\n\r")
		if end < 0 {
			l.keep(p)
			break
		}
		if p[end] == '\r' && end+1 < len(p) && p[end+1] == '\n' {
			end++
		}
		l.keep(p[:end+1])
		l.Flush()
		p = p[end+1:]
	}
	return n, nil
}

func (l *Lines) keep(p []byte) {
	room := max(maxLine-len(l.pending), 0)
	kept := min(room, len(p))
	l.pending = append(l.pending, p[:kept]...)
	l.cut += len(p) - kept
}

// Pending reports whether a line has begun and not ended.
func (l *Lines) Pending() bool { return len(l.pending) > 0 }

// Flush writes what is pending; a cut line, or a last line without an end, gets a line end.
func (l *Lines) Flush() {
	if len(l.pending) == 0 {
		return
	}
	line := l.pending
	if l.prefix != "" {
		line = append([]byte(l.prefix), line...)
	}
	if l.cut > 0 {
		line = fmt.Appendf(line, "... [switchyard: %d bytes of this line left out]\n", l.cut)
	} else if last := line[len(line)-1]; last != '\n' && last != '\r' {
		line = append(line, '\n')
	}
	_, _ = l.to.Write(line)
	l.pending, l.cut = l.pending[:0], 0
}

// Header returns the line that begins the output of an attempt.
func Header(a train.Attempt, at string) string {
	var devices []string
	for _, p := range a.Places() {
		words := train.JoinDevices(p.Devices)
		if len(a.Parts) > 0 {
			words = string(p.Node) + "/" + words
		}
		devices = append(devices, words)
	}
	where := ""
	if words := strings.Join(devices, " "); words != "" {
		where = " on " + words
	}
	return fmt.Sprintf("[switchyard: attempt %d of %s%s, %s]", a.Number, a.Job, where, at)
}
