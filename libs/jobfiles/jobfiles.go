// Package jobfiles finds what a job has written on its machine. In the job's own folder two links lead to it, which
// the executor makes at the start: checkpoints and started_in.
package jobfiles

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/rpc"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
)

// The links in a job's folder.
const (
	checkpointsName = "checkpoints"
	startedInName   = "started_in"
)

// maxChunk bounds a piece of a file: with base64 around it, it must fit into a message. mostFiles bounds a list, and
// mostSeen what is looked at for it.
const (
	maxChunk  = 512 << 10
	mostFiles = 1000
	mostSeen  = 100_000
)

// Link makes the links of a job. A link with the job's id is also put beside its checkpoints, whose folder has a secret
// name, if their file system has links.
func Link(l installation.Layout, job train.JobID, checkpoints, work string) error {
	_ = link(filepath.Join(filepath.Dir(checkpoints), string(job)), filepath.Base(checkpoints))
	err := link(filepath.Join(l.Own(job), checkpointsName), checkpoints)
	if err == nil && work != "" {
		err = link(filepath.Join(l.Own(job), startedInName), work)
	}
	return err
}

// link makes or changes a link, and leaves alone what a user has put there.
func link(name, to string) error {
	info, err := os.Lstat(name)
	if err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return nil
	}
	if have, err := os.Readlink(name); err == nil && have == to {
		return nil
	}
	_ = os.Remove(name)
	if err := os.Symlink(to, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("name a folder of a job: %w", err)
	}
	return nil
}

// Answer returns the list of a job's files, or a piece of one.
func Answer(l installation.Layout, machine train.NodeID, r rpc.FileRequest) (rpc.FileAnswer, error) {
	if _, err := train.ParseJobID(string(r.Job)); err != nil {
		return rpc.FileAnswer{}, err
	}
	answer := rpc.FileAnswer{Folders: find(l, r.Job)}
	answer.Folders.Machine = machine
	if answer.Folders.Job == "" {
		return answer, rpc.Missing("no files of job %s here: it has not started on this node, or its folder was removed (switchyard purge)", r.Job)
	}
	var err error
	if r.Path == "" {
		answer.Files, answer.More = list(l, r.Job, answer.Folders)
	} else {
		answer.Data, answer.Size, err = read(l, answer.Folders, r)
	}
	return answer, err
}

// Resumes reports whether a job could not go on from its checkpoints without an entry of its folder.
func Resumes(entry string) bool {
	return slices.Contains([]string{"snapshots", checkpointsName, "capability", "continued"}, entry)
}

// Checkpoints returns the folder that a job sees as /snapshots/JOB_UUID; empty if there is none. A job of an older
// version has no links: its checkpoints are in the only folder below its snapshots.
func Checkpoints(l installation.Layout, job train.JobID) string {
	if to, err := filepath.EvalSymlinks(filepath.Join(l.Own(job), checkpointsName)); err == nil {
		return to
	}
	if old, err := filepath.Glob(filepath.Join(l.Snapshots(job), "*")); err == nil && len(old) == 1 {
		return old[0]
	}
	return ""
}

// find returns the folders of a job that are there.
func find(l installation.Layout, job train.JobID) rpc.Folders {
	var f rpc.Folders
	if !isFolder(l.Own(job)) {
		return f
	}
	f.Job = l.Own(job)
	if _, err := os.Stat(l.Output(job)); err == nil {
		f.Output = l.Output(job)
	}
	f.Checkpoints = Checkpoints(l, job)
	if named := filepath.Join(filepath.Dir(f.Checkpoints), string(job)); f.Checkpoints != "" && isFolder(named) {
		f.Checkpoints = named
	}
	f.Work = l.Work(job)
	if to, err := filepath.EvalSymlinks(filepath.Join(l.Own(job), startedInName)); err == nil {
		f.Work = to
	}
	for _, folder := range []*string{&f.Checkpoints, &f.Work} {
		if !isFolder(*folder) {
			*folder = ""
		}
	}
	return f
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// list returns the newest files. In a folder that the user named or uploaded, those that were there before the job are
// no results: the link to it is made at the first start.
func list(l installation.Layout, job train.JobID, f rpc.Folders) (files []rpc.File, more bool) {
	var since time.Time
	if info, err := os.Lstat(filepath.Join(l.Own(job), startedInName)); err == nil && f.Work != l.Work(job) {
		since = info.ModTime()
	}
	saved, cut := below(l, "checkpoints", f.Checkpoints, time.Time{})
	worked, cutToo := below(l, "work", f.Work, since)
	files = slices.Concat(saved, worked)
	slices.SortFunc(files, func(a, b rpc.File) int {
		return cmp.Or(b.ChangedAt.Compare(a.ChangedAt), strings.Compare(a.Path, b.Path))
	})
	kept := min(len(files), mostFiles)
	return files[:kept], cut || cutToo || kept < len(files)
}

// below returns the files of a folder that were changed after a time.
func below(l installation.Layout, name, folder string, since time.Time) (files []rpc.File, cut bool) {
	if folder == "" {
		return nil, false
	}
	if resolved, err := filepath.EvalSymlinks(folder); err == nil {
		folder = resolved
	}
	seen := 0
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if seen++; seen > mostSeen {
			cut = true
			return fs.SkipAll
		}
		if path != folder && private(l, folder, path) {
			if err == nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read is not listed
		}
		info, err := d.Info()
		within, badPath := filepath.Rel(folder, path)
		if err == nil && badPath == nil && info.ModTime().After(since) {
			files = append(files, rpc.File{Path: name + "/" + filepath.ToSlash(within), Size: unit.Bytes(info.Size()), ChangedAt: info.ModTime().UTC()})
		}
		return nil
	})
	return files, cut
}

// private reports whether a path below a folder is no result of a job: the folder may be a home. Names that begin with
// a dot, and the data folder with the secrets of other jobs, are private.
func private(l installation.Layout, folder, path string) bool {
	data := l.DataDir
	if resolved, err := filepath.EvalSymlinks(data); err == nil {
		data = resolved
	}
	if within, err := filepath.Rel(data, folder); err == nil && filepath.IsLocal(within) {
		return false // the job's own folder
	}
	if within, err := filepath.Rel(data, path); err == nil && filepath.IsLocal(within) {
		return true
	}
	within, err := filepath.Rel(folder, path)
	return err != nil || strings.Contains("/"+filepath.ToSlash(within), "/.")
}

// read returns a piece of a file. Neither .. nor a link leads out of the job's folders, nor to what is private.
func read(l installation.Layout, f rpc.Folders, r rpc.FileRequest) ([]byte, int64, error) {
	name, within, _ := strings.Cut(r.Path, "/")
	folder := map[string]string{"checkpoints": f.Checkpoints, "work": f.Work}[name]
	if folder == "" {
		return nil, 0, rpc.Invalid("%q: want a file below checkpoints/ or work/, as the list names it", r.Path)
	}
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil, 0, fmt.Errorf("open the folder of %q: %w", r.Path, err)
	}
	if path, err := filepath.EvalSymlinks(filepath.Join(folder, within)); err == nil && private(l, folder, path) {
		return nil, 0, rpc.Invalid("%q: files with names that begin with a dot, and files outside of the job's folders, are not given out", r.Path)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, 0, fmt.Errorf("open the folder of %q: %w", r.Path, err)
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(within)
	if err != nil {
		return nil, 0, fmt.Errorf("open %q: %w", r.Path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, 0, rpc.Invalid("%q: want a file, found a folder or a device", r.Path)
	}
	file, err := root.Open(within)
	if err != nil {
		return nil, 0, fmt.Errorf("open %q: %w", r.Path, err)
	}
	defer func() { _ = file.Close() }()
	data := make([]byte, maxChunk)
	n, err := file.ReadAt(data, max(r.Offset, 0))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("read %q: %w", r.Path, err)
	}
	return data[:n], info.Size(), nil
}
