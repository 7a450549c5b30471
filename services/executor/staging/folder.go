package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// folder is a file or a folder that the node sees, such as one of an NFS server.
type folder struct{ path string }

// list implements source. Admission has let the path pass with its links followed. A link that was put there since, and
// links below it, may lead out of the folders that jobs may use, and are not followed.
func (f folder) list(ctx context.Context, _ string) (listing, error) {
	resolved, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return listing{}, err
	}
	if resolved != filepath.Clean(f.path) {
		return listing{}, fmt.Errorf("%w: %s is a link now", ErrNever, f.path)
	}
	var l listing
	version := &strings.Builder{}
	err = filepath.WalkDir(resolved, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(resolved, path)
		if err != nil {
			return err
		}
		if name == "." {
			name = filepath.Base(path)
		}
		fmt.Fprintf(version, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		l.items = append(l.items, item{filepath.ToSlash(name), path, info.Size()})
		if len(l.items) > mostFiles {
			return fmt.Errorf("%w: %s has more than %d files", ErrNever, f.path, mostFiles)
		}
		return nil
	})
	l.version = train.Hash(version.String())
	return l, err
}

func (f folder) open(_ context.Context, i item) (io.ReadCloser, error) {
	file, err := installation.OpenRegular(i.at)
	if err != nil {
		return nil, err
	}
	if at, err := installation.PathOf(file); err != nil || at != i.at { // a folder above it is a link now
		return nil, errors.Join(fmt.Errorf("%w: %s leads to %s now", ErrNever, i.at, at), err, file.Close())
	}
	return file, nil
}
