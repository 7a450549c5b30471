package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// artifact is a file of a release.
type artifact struct {
	name  string
	write func(ctx context.Context, w io.Writer) error
}

//go:embed install.sh
var installScript string

// clients are the targets of the command line alone, servers those of all programs.
func clients() []target {
	return []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}
}

func servers() []target { return clients()[:2] }

// everything are the programs of an archive for a server; installed are those of a package.
func everything() []string { return append(installed(), "switchyard-executor", "switchyard-nodeagent") }

func installed() []string {
	return []string{"switchyard", "switchyard-server", "switchyard-supervisor", "switchyard-trainer"}
}

// artifacts is the table of the files of a release, but for their checksums.
func (r *release) artifacts() ([]artifact, error) {
	all := []artifact{{"install.sh", func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, installScript)
		return err
	}}}
	for _, t := range clients() {
		all = append(all, artifact{fmt.Sprintf("switchyard-client_%s_%s_%s.tar.gz", r.version, t.os, t.arch), r.archive(t, "switchyard")})
	}
	for _, t := range servers() {
		all = append(all, artifact{fmt.Sprintf("switchyard_%s_%s_%s.tar.gz", r.version, t.os, t.arch), r.archive(t, everything()...)})
		for _, format := range []string{"deb", "rpm"} {
			all = append(all, artifact{r.packageName(t, format), r.packaged(t, format)})
		}
	}
	aside, err := r.aside()
	return append(all, aside...), err
}

// make writes an artifact to a file.
func (r *release) make(ctx context.Context, a artifact, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make a file: %w", err)
	}
	if err := errors.Join(a.write(ctx, f), f.Close()); err != nil {
		_ = os.Remove(path)
		return err
	}
	return os.Chtimes(path, r.at, r.at)
}

// archive writes programs, license and changelog, with the time of the commit and without an owner.
func (r *release) archive(t target, names ...string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		paths := []string{filepath.Join(r.source, "LICENSE"), filepath.Join(r.source, "CHANGELOG.md")}
		for _, name := range names {
			path, err := r.program(ctx, t, name)
			if err != nil {
				return err
			}
			paths = append(paths, path)
		}
		zipped, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return fmt.Errorf("compress: %w", err)
		}
		out := tar.NewWriter(zipped)
		for _, path := range paths {
			if err := r.add(out, path); err != nil {
				return fmt.Errorf("add %s to the archive: %w", filepath.Base(path), err)
			}
		}
		return errors.Join(out.Close(), zipped.Close())
	}
}

// add adds a file to an archive.
func (r *release) add(out *tar.Writer, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	mode := int64(0o755)
	if strings.HasPrefix(path, r.source) {
		mode = 0o644
	}
	err = out.WriteHeader(&tar.Header{Name: filepath.Base(path), Mode: mode, Size: int64(len(data)), ModTime: r.at, Format: tar.FormatUSTAR})
	if err == nil {
		_, err = out.Write(data)
	}
	return err
}

// sumsName is the file with the checksums, in the form that sha256sum --check reads.
const sumsName = "SHA256SUMS"

func writeSums(dir string, names []string) error {
	var text strings.Builder
	for _, name := range slices.Sorted(slices.Values(names)) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read what was made: %w", err)
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(data), name)
	}
	if err := os.WriteFile(filepath.Join(dir, sumsName), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write the checksums: %w", err)
	}
	return nil
}
