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

	"golang.org/x/sys/unix"

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
	answer.Folders.Checkpoints = named(r.Job, answer.Folders.Checkpoints)
	return answer, err
}

// Resumes reports whether a job could not go on from its checkpoints without an entry of its folder.
func Resumes(entry string) bool {
	return slices.Contains([]string{"snapshots", checkpointsName, "capability", "continued"}, entry)
}

// Checkpoints returns the folder that a job sees as /snapshots/JOB_UUID; empty if there is none, or something else was
// put in its place since the job started. A job of an older version has no links: its checkpoints are in the only
// folder below its snapshots.
func Checkpoints(l installation.Layout, job train.JobID) string {
	saved, err := os.Readlink(filepath.Join(l.Own(job), checkpointsName))
	if errors.Is(err, fs.ErrNotExist) {
		if old, err := filepath.Glob(filepath.Join(l.Real().Snapshots(job), "*")); err == nil && len(old) == 1 {
			saved = old[0]
		}
	}
	return there(l, job, saved)
}

// workOf returns the folder in which a job was started; empty if it is not there.
func workOf(l installation.Layout, job train.JobID) string {
	if named, err := os.Readlink(filepath.Join(l.Own(job), startedInName)); err == nil {
		return there(l, job, named)
	}
	return there(l, job, l.Real().Work(job))
}

// there returns a folder if Open would open it, else nothing.
func there(l installation.Layout, job train.JobID, folder string) string {
	root, err := Open(l, job, folder)
	if err != nil {
		return ""
	}
	_ = root.Close()
	return folder
}

var errMoved = errors.New("is not the folder that the job was started with")

// Open opens a folder that a job can write to, by the path that it had when the job started. The job, or who owns the
// folder, may have put a link in its place: what that leads to may be the service's to read, and not theirs. It opens
// only the job's own folders of the data folder, unless the rights of its user keep it from those of others.
func Open(l installation.Layout, job train.JobID, folder string) (*os.Root, error) {
	if !installation.IsFolder(folder) {
		return nil, fmt.Errorf("open %s: %w", folder, fs.ErrNotExist)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	opened, err := root.Open(".")
	if err == nil {
		defer func() { _ = opened.Close() }()
		var real string
		if real, err = installation.PathOf(opened); err == nil && (real != filepath.Clean(folder) || !l.People && l.Holds(real) && l.Exposed(real, job)) {
			err = fmt.Errorf("%s %w: it leads to %s", folder, errMoved, real)
		}
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// find returns the folders of a job that are there.
func find(l installation.Layout, job train.JobID) rpc.Folders {
	var f rpc.Folders
	if !installation.IsFolder(l.Own(job)) {
		return f
	}
	f.Job = l.Own(job)
	if _, err := os.Lstat(l.Output(job)); err == nil {
		f.Output = l.Output(job)
	}
	f.Checkpoints, f.Work = Checkpoints(l, job), workOf(l, job)
	return f
}

// named returns the name for people of a folder of checkpoints: the link beside it, if it is still there.
func named(job train.JobID, checkpoints string) string {
	link := filepath.Join(filepath.Dir(checkpoints), string(job))
	if to, err := os.Readlink(link); err == nil && to == filepath.Base(checkpoints) {
		return link
	}
	return checkpoints
}

// list returns the newest files. In a folder that the user named or uploaded, those that were there before the job are
// no results: the link to it is made at the first start.
func list(l installation.Layout, job train.JobID, f rpc.Folders) (files []rpc.File, more bool) {
	var since time.Time
	if info, err := os.Lstat(filepath.Join(l.Own(job), startedInName)); err == nil && f.Work != l.Real().Work(job) {
		since = info.ModTime()
	}
	saved, cut := below(l, job, "checkpoints", f.Checkpoints, time.Time{})
	worked, cutToo := below(l, job, "work", f.Work, since)
	files = slices.Concat(saved, worked)
	slices.SortFunc(files, func(a, b rpc.File) int {
		return cmp.Or(b.ChangedAt.Compare(a.ChangedAt), strings.Compare(a.Path, b.Path))
	})
	kept := min(len(files), mostFiles)
	return files[:kept], cut || cutToo || kept < len(files)
}

// below returns the files of a folder that were changed after a time.
func below(l installation.Layout, job train.JobID, name, folder string, since time.Time) (files []rpc.File, cut bool) {
	root, err := Open(l, job, folder)
	if err != nil {
		return nil, false
	}
	defer func() { _ = root.Close() }()
	seen := 0
	_ = fs.WalkDir(root.FS(), ".", func(within string, d fs.DirEntry, err error) error {
		if seen++; seen > mostSeen {
			cut = true
			return fs.SkipAll
		}
		if within != "." && private(l, folder, filepath.Join(folder, within)) {
			if err == nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read is not listed
		}
		if info, err := d.Info(); err == nil && info.ModTime().After(since) {
			files = append(files, rpc.File{Path: name + "/" + within, Size: unit.Bytes(info.Size()), ChangedAt: info.ModTime().UTC()})
		}
		return nil
	})
	return files, cut
}

// private reports whether a path below a folder that was opened is no result of a job: the folder may be a home. Names
// that begin with a dot, and the data folder with the secrets of other jobs, are private. Within the data folder only
// the job's own folders are opened.
func private(l installation.Layout, folder, path string) bool {
	within, err := filepath.Rel(folder, path)
	if err != nil || !filepath.IsLocal(within) {
		return true
	}
	return !l.Holds(folder) && (l.Holds(path) || strings.Contains("/"+filepath.ToSlash(within), "/."))
}

// read returns a piece of a file. Neither .. nor a link leads out of the job's folders, nor to what is private.
func read(l installation.Layout, f rpc.Folders, r rpc.FileRequest) ([]byte, int64, error) {
	name, within, _ := strings.Cut(r.Path, "/")
	folder := map[string]string{"checkpoints": f.Checkpoints, "work": f.Work}[name]
	if folder == "" {
		return nil, 0, rpc.Invalid("%q: want a file below checkpoints/ or work/, as the list names it", r.Path)
	}
	root, err := Open(l, r.Job, folder)
	if err != nil {
		return nil, 0, fmt.Errorf("open the folder of %q: %w", r.Path, err)
	}
	defer func() { _ = root.Close() }()
	file, err := root.OpenFile(within, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("open %q: %w", r.Path, err)
	}
	defer func() { _ = file.Close() }()
	if path, err := installation.PathOf(file); err != nil || private(l, folder, path) {
		return nil, 0, rpc.Invalid("%q: files with names that begin with a dot, and files outside of the job's folders, are not given out", r.Path)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("open %q: %w", r.Path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, 0, rpc.Invalid("%q: want a file, found a folder or a device", r.Path)
	}
	data := make([]byte, maxChunk)
	n, err := file.ReadAt(data, max(r.Offset, 0))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("read %q: %w", r.Path, err)
	}
	return data[:n], info.Size(), nil
}
