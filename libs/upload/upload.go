// Package upload packs the folder of a submission into one archive, which travels over the bus, and unpacks it on the
// machine of the job. Equal folders are equal archives, and an archive is known by the hash of its content. The package
// trusts no archive: nothing is written outside of the folder that it is unpacked into.
package upload

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Limits bound a folder. What is larger than code belongs into a folder of datasets.
type Limits struct {
	Bytes int64
	Files int
}

// Standard are the limits of submissions and of executors.
func Standard() Limits { return Limits{Bytes: 256 << 20, Files: 50_000} }

// entry is a file, folder or link to pack.
type entry struct {
	name   string
	info   fs.FileInfo
	target string
}

// Pack writes the archive of a folder and returns its hash. What IgnoreFile names is left out.
func Pack(dir string, limits Limits, to io.Writer) (hash string, err error) {
	entries, err := list(dir, limits)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	archive := tar.NewWriter(io.MultiWriter(to, sum))
	for _, e := range entries {
		if err := add(archive, dir, e); err != nil {
			return "", fmt.Errorf("pack %s: %w", filepath.Join(dir, e.name), err)
		}
	}
	if err := archive.Close(); err != nil {
		return "", fmt.Errorf("pack %s: %w", dir, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// listing is what a folder holds, in a fixed order.
type listing struct {
	dir     string
	ignored rules
	entries []entry
	// bytes counts the content of files, largest that of each file or folder at the top.
	bytes   int64
	largest map[string]int64
}

func list(dir string, limits Limits) ([]entry, error) {
	ignored, err := readIgnoreFile(dir)
	if err != nil {
		return nil, err
	}
	l := listing{dir: dir, ignored: ignored, largest: map[string]int64{}}
	err = filepath.WalkDir(dir, func(full string, d fs.DirEntry, err error) error {
		if err != nil || full == dir {
			return err
		}
		return l.visit(full, d)
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("pack %s: %w", dir, err)
	case l.bytes > limits.Bytes:
		top := slices.MaxFunc(slices.Sorted(maps.Keys(l.largest)), func(a, b string) int { return cmp.Compare(l.largest[a], l.largest[b]) })
		return nil, fmt.Errorf("%s has %d MiB, more than the %d MiB of an upload; %s alone has %d MiB: name in %s what the job does not need, and keep data on its machine (--datasets-dir)",
			dir, l.bytes>>20, limits.Bytes>>20, top, l.largest[top]>>20, IgnoreFile)
	case len(l.entries) > limits.Files:
		return nil, fmt.Errorf("%s has %d files, more than the %d of an upload: name in %s what the job does not need", dir, len(l.entries), limits.Files, IgnoreFile)
	}
	return l.entries, nil
}

// visit adds a file, folder or link unless it is ignored. A socket, pipe or device is nothing to copy.
func (l *listing) visit(full string, d fs.DirEntry) error {
	name, err := filepath.Rel(l.dir, full)
	if err != nil {
		return err
	}
	name = filepath.ToSlash(name)
	if l.ignored.match(name, d.IsDir()) {
		if d.IsDir() {
			return filepath.SkipDir
		}
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	e := entry{name: name, info: info}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		l.bytes += info.Size()
		top, _, _ := strings.Cut(name, "/")
		l.largest[top] += info.Size()
	case mode&fs.ModeSymlink != 0:
		if e.target, err = inwardLink(full, name); err != nil {
			return err
		}
	case !mode.IsDir():
		return nil
	}
	l.entries = append(l.entries, e)
	return nil
}

// inwardLink returns where a symbolic link leads. Outside of the folder it would lead nowhere on another machine.
func inwardLink(full, name string) (string, error) {
	target, err := os.Readlink(full)
	if err != nil {
		return "", err
	}
	if !inward(name, target) {
		return "", fmt.Errorf("the link %s leads to %s, out of the folder: name it in %s", name, target, IgnoreFile)
	}
	return target, nil
}

// inward reports whether a link stays in its archive.
func inward(name, target string) bool {
	return !path.IsAbs(target) && filepath.IsLocal(path.Join(path.Dir(name), target))
}

// add writes an entry without its times and its owner: they say nothing about the content.
func add(archive *tar.Writer, dir string, e entry) error {
	header := &tar.Header{Name: e.name, Mode: int64(e.info.Mode().Perm()), Format: tar.FormatPAX}
	switch {
	case e.info.IsDir():
		header.Typeflag = tar.TypeDir
	case e.target != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, e.target, 0o777
	default:
		header.Typeflag, header.Size = tar.TypeReg, e.info.Size()
	}
	if err := archive.WriteHeader(header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	f, err := os.Open(filepath.Join(dir, e.name))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.CopyN(archive, f, e.info.Size())
	if errors.Is(err, io.EOF) {
		return errors.New("the file shrank while it was packed: try again")
	}
	return err
}

// Archive is the largest size of the archive of a folder: names and the fill of the last block come on top.
func (l Limits) Archive() int64 {
	const perFile = 4 << 10
	return l.Bytes + int64(l.Files)*perFile
}

// checked is the reader of Checked.
type checked struct {
	from io.Reader
	sum  hash.Hash
	want string
}

// Checked reads an archive. At its end it returns ErrRefused instead of io.EOF if the content has another hash.
func Checked(from io.Reader, want string) io.Reader { return &checked{from, sha256.New(), want} }

// Read implements io.Reader.
func (c *checked) Read(p []byte) (n int, err error) {
	n, err = c.from.Read(p)
	c.sum.Write(p[:n])
	if errors.Is(err, io.EOF) {
		if got := hex.EncodeToString(c.sum.Sum(nil)); got != c.want {
			err = fmt.Errorf("%w: its content has the hash %s, want %s", ErrRefused, got, c.want)
		}
	}
	return n, err
}

// ErrRefused is returned for an archive that Pack does not make, or that is too large. It is refused for good.
var ErrRefused = errors.New("the uploaded folder is refused")

// Unpack writes an archive into an empty folder. It reads all of it, and returns ErrRefused for content that does not
// have the hash, is larger than the limits, or would leave the folder.
func Unpack(from io.Reader, want string, limits Limits, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the folder of the upload: %w", err)
	}
	defer func() { _ = root.Close() }()
	read := Checked(from, want)
	archive, left := tar.NewReader(read), limits
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the upload: %w", err)
		}
		left.Files--
		left.Bytes -= header.Size
		if left.Files < 0 || left.Bytes < 0 {
			return fmt.Errorf("%w: more than %d MiB or %d files", ErrRefused, limits.Bytes>>20, limits.Files)
		}
		if err := extract(root, archive, header); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, read); err != nil { // what follows the last entry counts for the hash
		return fmt.Errorf("read the upload: %w", err)
	}
	return nil
}

// extract writes one entry. The root refuses to follow links out of it.
func extract(root *os.Root, content io.Reader, header *tar.Header) error {
	name, mode := path.Clean(header.Name), fs.FileMode(header.Mode)&fs.ModePerm
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%w: %q leads out of it", ErrRefused, header.Name)
	}
	var err error
	switch header.Typeflag {
	case tar.TypeDir:
		err = root.MkdirAll(name, mode|0o700)
	case tar.TypeSymlink:
		if !inward(name, header.Linkname) {
			return fmt.Errorf("%w: the link %s leads to %q, out of it", ErrRefused, name, header.Linkname)
		}
		err = root.Symlink(header.Linkname, name)
	case tar.TypeReg:
		var f *os.File
		if f, err = root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode|0o600); err == nil {
			_, err = io.Copy(f, content)
			err = errors.Join(err, f.Close())
		}
	default:
		return fmt.Errorf("%w: %s is neither a file, a folder nor a link", ErrRefused, name)
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	return nil
}
