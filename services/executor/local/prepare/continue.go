package prepare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/jobfiles"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/executor/launch"
	"github.com/switchyard-dl/switchyard/services/executor/local/proxy"
)

// Capability returns the path of the file with the secret by which a job names the folder of its checkpoints.
func (p *Preparer) Capability(job train.JobID) string { return filepath.Join(p.Job(job), "capability") }

// continued is the file that says that a job has its copy of the checkpoints of the job that it continues.
func (p *Preparer) continued(job train.JobID) string { return filepath.Join(p.Own(job), "continued") }

var (
	errContinue     = errors.New("continue")
	errNothingSaved = errors.New("nothing that it saved is left on this machine: it ran on another one, or `switchyard purge` removed it")
	errChanged      = errors.New("changed while it was copied")
)

// copyCheckpoints gives a job a copy of what the job that it continues has saved: its folder of checkpoints, what else
// lies in a snapshots folder of its own, and the files of the checkpoint pattern in a working folder of its own.
// Folders that users name are not copied: the program of the new job sees the same ones. No attempt starts before the
// whole copy is there, so a copy that a crash interrupted is made again over the files that it left.
func (p *Preparer) copyCheckpoints(ctx context.Context, s launch.Setting) error {
	if s.Spec.Continue == "" || installation.Exists(p.continued(s.Job)) {
		return nil
	}
	if !s.Attempt.FromScratch {
		if err := p.copyFrom(ctx, s.Spec.Continue, s); err != nil {
			return fmt.Errorf("%w %s: %w", errContinue, s.Spec.Continue, err)
		}
	}
	return installation.WriteFile(p.continued(s.Job), []byte(s.Spec.Continue))
}

func (p *Preparer) copyFrom(ctx context.Context, other train.JobID, s launch.Setting) error {
	s.Mounted = p.Mounts(s.Spec)
	if err := p.resolveFolders(&s); err != nil {
		return err
	}
	l := p.Real()
	c := copier{ctx: ctx, layout: l}
	all := func(string) bool { return false }
	saved := jobfiles.Checkpoints(l, other)
	if saved != "" {
		c.tree(folderOf{other, saved}, ".", folderOf{s.Job, s.Snapshots}, s.Capability, all)
	}
	if own := l.Snapshots(other); installation.Exists(own) && s.Spec.SnapshotsDir == "" {
		c.tree(folderOf{other, own}, ".", folderOf{s.Job, s.Snapshots}, ".", func(name string) bool { return name == string(other) || name == filepath.Base(saved) })
	}
	if pattern := s.Spec.Checkpoint; pattern != "" && !filepath.IsAbs(pattern) && workDir(s) == s.Work && installation.Exists(l.Work(other)) {
		c.tree(folderOf{other, l.Work(other)}, pattern, folderOf{s.Job, l.Work(s.Job)}, ".", all)
	}
	if c.err != nil || c.files > 0 {
		return c.err
	}
	if !proxy.HasCheckpoint(sightOf(s.Job, l), filesOf(s, s.Spec.Checkpoint)) {
		return errNothingSaved
	}
	return nil
}

// folderOf is a folder that a job can write to.
type folderOf struct {
	job  train.JobID
	path string
}

// copier copies files until something goes wrong. The folders are those of programs, which may put links into them
// meanwhile: none leads out of them, to what only the service can read or write.
type copier struct {
	ctx    context.Context //nolint:containedctx // for one call
	layout installation.Layout
	files  int
	err    error
}

// tree copies what a pattern names in a folder into another folder, below a path there. It leaves out entries of the
// folder for which skip is true.
func (c *copier) tree(from folderOf, pattern string, to folderOf, below string, skip func(name string) bool) {
	if c.err != nil {
		return
	}
	var source, target *os.Root
	if source, c.err = jobfiles.Open(c.layout, from.job, from.path); c.err != nil {
		return
	}
	defer func() { _ = source.Close() }()
	if target, c.err = jobfiles.Open(c.layout, to.job, to.path); c.err != nil {
		return
	}
	defer func() { _ = target.Close() }()
	names, _ := fs.Glob(source.FS(), filepath.Clean(pattern)) // a pattern is checked when its job is admitted
	for _, name := range names {
		c.err = errors.Join(c.err, c.walk(source, name, target, below, skip))
	}
}

// walk copies a file or a folder. A link to a file beside it, such as one to the newest checkpoint, stays a link; other
// links are left out.
func (c *copier) walk(source *os.Root, name string, target *os.Root, below string, skip func(name string) bool) error {
	if info, err := source.Lstat(name); err == nil && info.Mode().Type() == fs.ModeSymlink {
		return copyLink(source, name, target, filepath.Join(below, name))
	}
	return fs.WalkDir(source.FS(), name, func(path string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, c.ctx.Err()); err != nil {
			return err
		}
		to := filepath.Join(below, path)
		switch {
		case path != "." && path == d.Name() && skip(path):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return target.MkdirAll(to, 0o700)
		case d.Type() == fs.ModeSymlink:
			return copyLink(source, path, target, to)
		case d.Type().IsRegular():
			c.files++
			return copyOne(source, path, target, to)
		}
		return nil
	})
}

func copyLink(source *os.Root, from string, target *os.Root, to string) error {
	leads, err := source.Readlink(from)
	if err != nil || !filepath.IsLocal(leads) {
		return err
	}
	_ = target.Remove(to)
	return target.Symlink(leads, to)
}

// copyOne copies a file with its mode and its time, by which the newest checkpoint is found. Two names of one file
// would not do: programs write over their checkpoints.
func copyOne(source *os.Root, from string, target *os.Root, to string) error {
	in, err := source.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	before, err := in.Stat()
	if err == nil {
		err = target.MkdirAll(filepath.Dir(to), 0o700)
	}
	if err != nil {
		return err
	}
	out, err := target.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, before.Mode().Perm()|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Sync(), out.Close(), target.Chtimes(to, before.ModTime(), before.ModTime()))
	after, gone := source.Stat(from)
	if err == nil && (gone != nil || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime())) {
		err = fmt.Errorf("%s %w", from, errChanged)
	}
	return err
}

// FindSaved looks for what a job has saved. Nothing is left if its folder on this machine is gone, with the name of its
// folder of checkpoints, unless another machine has made that in a snapshots_dir that this one sees, too. A program
// that saves in a folder of its user still finds its files.
func (p *Preparer) FindSaved(job train.Job, last train.Attempt) (bool, error) {
	if err := p.takeOver(job, last); err != nil {
		return false, err
	}
	if installation.Exists(p.Capability(job.ID)) {
		return true, nil
	}
	at := job.Checkpoint
	if at == "" {
		return workDirHere(job.Spec) != "", nil
	}
	for _, folder := range []string{launch.SnapshotsTarget, p.Job(job.ID), job.Spec.SnapshotsDir} {
		if folder != "" && strings.HasPrefix(at, folder+"/") {
			return false, nil
		}
	}
	return installation.Exists(at), nil
}

// takeOver gives a job the secret name that it had on another machine, if its folder of checkpoints is in a
// snapshots_dir that both see. The record of the last attempt tells which name it is by its hash.
func (p *Preparer) takeOver(job train.Job, last train.Attempt) error {
	path := p.Capability(job.ID)
	if own, err := os.ReadFile(path); job.Spec.SnapshotsDir == "" || err == nil && train.Hash(string(own)) == last.CapabilityHash {
		return nil
	}
	folders, _ := os.ReadDir(job.Spec.SnapshotsDir) // if it cannot be read, the start says why
	i := slices.IndexFunc(folders, func(f fs.DirEntry) bool { return f.IsDir() && train.Hash(f.Name()) == last.CapabilityHash })
	if i < 0 {
		return nil
	}
	if err := installation.MakeFolder(p.Job(job.ID)); err != nil {
		return err
	}
	return installation.WriteFile(path, []byte(folders[i].Name()))
}
