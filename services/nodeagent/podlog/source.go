package podlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/switchyard-dl/switchyard/libs/joblog"
)

// mark is how far a container's log was read: the file, which keeps its inode when it is rotated, and the offset in
// it.
type mark struct {
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
}

// source reads the log of one container.
type source struct {
	pod  pod
	path string
	file *os.File
	at   mark
	// rest is the beginning of a line that is not complete yet.
	rest   []byte
	out    *joblog.Lines
	errors *joblog.Lines
	// epochs reads the lines that go to out and errors; nil if no epochs are wanted.
	epochs *epochReader
}

// longestLine bounds what is kept of a line without an end. The runtime breaks lines at 16 KiB.
const longestLine = 256 << 10

// open opens the file that was being read, whatever its name is by now, or else the newest one from its beginning. It
// may be gone.
func (s *source) open() error {
	names := []string{s.path}
	if s.at.Inode != 0 && inodeOf(s.path) != s.at.Inode {
		entries, _ := os.ReadDir(filepath.Dir(s.path)) // without any, there is no rotated file either
		for _, e := range entries {
			name := filepath.Join(filepath.Dir(s.path), e.Name())
			if strings.HasPrefix(name, s.path+".") && inodeOf(name) == s.at.Inode {
				names = []string{name, s.path}
			}
		}
	}
	for _, name := range names {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open the log of a container: %w", err)
		}
		s.take(f)
		return nil
	}
	return nil
}

// take continues with a file: where reading stopped, if it is the same file.
func (s *source) take(f *os.File) {
	if s.file != nil {
		_ = s.file.Close()
	}
	s.file = f
	inode, size := uint64(0), int64(0)
	if info, err := f.Stat(); err == nil {
		inode, size = inodeIn(info), info.Size()
	}
	// A file that is shorter than what was read of it is another one with the same inode.
	if inode != s.at.Inode || size < s.at.Offset {
		s.at, s.rest = mark{Inode: inode}, nil
	}
}

// inodeOf returns 0 if there is no file.
func inodeOf(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return inodeIn(info)
}

func inodeIn(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}

// read copies what is new, line by line; it calls before with each line before copying it. It continues with the next
// file if the runtime has begun one.
func (s *source) read(before func(line)) error {
	if s.file == nil {
		if err := s.open(); err != nil || s.file == nil {
			return err
		}
	}
	for {
		// Once a new file exists, nothing more is written to the old one.
		next := inodeOf(s.path)
		if err := s.drain(before); err != nil {
			return err
		}
		if next == 0 || next == s.at.Inode {
			return nil
		}
		f, err := os.Open(s.path)
		if err != nil {
			return nil //nolint:nilerr // rotated once more, or deleted: looked at again soon
		}
		s.take(f)
	}
}

// drain reads to the end of the file.
func (s *source) drain(before func(line)) error {
	buffer := make([]byte, 64<<10)
	for {
		n, err := s.file.ReadAt(buffer, s.at.Offset)
		s.at.Offset += int64(n)
		s.rest = append(s.rest, buffer[:n]...)
		for {
			end := bytes.IndexByte(s.rest, '\n')
			if end < 0 {
				break
			}
			s.copy(s.rest[:end], before)
			s.rest = s.rest[end+1:]
		}
		if len(s.rest) > longestLine {
			s.rest = nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", s.path, err)
		}
	}
}

// copy passes the text of a line on.
func (s *source) copy(raw []byte, before func(line)) {
	l, ok := parseLine(raw)
	if !ok {
		return
	}
	before(l)
	if s.epochs != nil {
		s.epochs.written(l.at)
	}
	to := s.out
	if l.stderr {
		to = s.errors
	}
	_, _ = to.Write(l.text)
	if !l.partial {
		_, _ = to.Write([]byte("\n"))
	}
}

// settled returns the position up to which everything has arrived in the job's log; ok is false while a line has been
// copied in part.
func (s *source) settled() (m mark, ok bool) {
	return mark{Inode: s.at.Inode, Offset: s.at.Offset - int64(len(s.rest))}, !s.out.Pending() && !s.errors.Pending()
}

// finish ends lines that will not continue.
func (s *source) finish() {
	s.out.Flush()
	s.errors.Flush()
	if s.epochs != nil {
		s.epochs.end()
	}
}

func (s *source) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
