package joblog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// maxChunk bounds a piece of a log: with base64 around it, it must fit into a message.
const maxChunk = 512 << 10

// Answer reads the requested piece of a job's log. over is set if the job has ended: nothing is written any more.
func Answer(l installation.Layout, r rpc.LogRequest, limit int64, over bool) (rpc.LogChunk, error) {
	if _, err := train.ParseJobID(string(r.Job)); err != nil {
		return rpc.LogChunk{}, err
	}
	chunk, err := Read(l.Output(r.Job), r, limit)
	if err != nil {
		return chunk, err
	}
	if over && chunk.Size == 0 {
		return chunk, rpc.Missing("job %s: no output here: the job has not started on this node, or its folder was removed (switchyard purge)", r.Job)
	}
	chunk.Ended = over && chunk.Next >= chunk.Size
	return chunk, nil
}

// Read reads a piece of the job's log at path. Offsets count all output of the job, including what was dropped; reading
// skips dropped parts. A job that has not written anything has an empty log.
func Read(path string, r rpc.LogRequest, limit int64) (rpc.LogChunk, error) {
	f, err := installation.OpenRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return rpc.LogChunk{}, nil
	}
	if err != nil {
		return rpc.LogChunk{}, fmt.Errorf("open the log of %s: %w", r.Job, err)
	}
	defer func() { _ = f.Close() }()
	s, err := readShape(f, limit)
	if err != nil {
		return rpc.LogChunk{}, err
	}
	chunk := rpc.LogChunk{Size: s.written()}
	offset := r.Offset
	if offset < 0 {
		offset = max(chunk.Size+offset, 0)
	}
	offset = min(offset, chunk.Size)
	wanted := r.Max
	if wanted <= 0 || wanted > maxChunk {
		wanted = maxChunk
	}
	left := s.head + s.dropped - offset
	if offset >= s.head && left > 0 {
		chunk.Cut, offset = true, s.head+s.dropped
	}
	at, end := offset, s.head
	if s.skip > 0 && offset >= s.head+s.dropped {
		at, end = offset-s.dropped+s.skip, s.size
	}
	data := make([]byte, min(int64(wanted), max(end-at, 0)))
	n, err := f.ReadAt(data, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return chunk, fmt.Errorf("read the log of %s: %w", r.Job, err)
	}
	chunk.Data, chunk.Next = data[:n], offset+int64(n)
	if chunk.Cut {
		chunk.Data = append([]byte(strings.TrimLeft(string(mark(left, 0)), "\n")), chunk.Data...)
	}
	return chunk, nil
}
