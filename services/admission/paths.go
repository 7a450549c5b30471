package admission

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sourcegraph/conc"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/look"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/admission/fit"
)

// folders are what jobs may use on this machine: what lies below the roots and not in the data folder.
type folders struct {
	roots []string
	data  installation.Layout
	// asSubmitters says that jobs run as the users who submitted them. Then the kernel decides which folders they may use,
	// and admission, which may see fewer, looks at none.
	asSubmitters bool
	// looks inspects paths. All submissions share it.
	looks *look.Looks[string, fit.Path]
}

// resolve resolves the folders and the script of a job on this machine. It looks at all of them side by side, since one
// that does not answer takes seconds.
func (f folders) resolve(id train.JobID, spec train.Spec) fit.Paths {
	if f.asSubmitters {
		return unseen(spec)
	}
	paths, roots := fit.Paths{Data: addressOf(spec.DataURL)}, make([]fit.Path, len(f.roots))
	var looking conc.WaitGroup
	see := func(name string, found *fit.Path) {
		if filepath.IsAbs(name) {
			looking.Go(func() { *found = f.at(name) })
		}
	}
	see(spec.CustomDir, &paths.CustomDir)
	see(spec.SnapshotsDir, &paths.SnapshotsDir)
	see(spec.DatasetsDir, &paths.DatasetsDir)
	see(spec.WorkDir, &paths.WorkDir)
	if paths.Data.Scheme == fileScheme {
		see(paths.Data.Path, &paths.Data.File)
	}
	for i, root := range f.roots {
		see(root, &roots[i])
	}
	looking.Wait()
	if script := onHost(spec, paths); script != "" {
		see(script, &paths.Script)
		looking.Wait()
	}
	if file := paths.Data.File.Resolved; file != "" {
		paths.Data.Resolved = (&url.URL{Scheme: fileScheme, Path: file}).String()
	}
	for _, p := range []*fit.Path{&paths.CustomDir, &paths.SnapshotsDir, &paths.DatasetsDir} {
		p.Exposes = p.IsFolder && f.data.Exposed(p.Resolved, id)
	}
	// A job that starts in a folder around the data folder gets nothing mounted, and does not see it.
	paths.WorkDir.Exposes = paths.WorkDir.IsFolder && f.data.Holds(paths.WorkDir.Resolved) && f.data.Exposed(paths.WorkDir.Resolved, id)
	paths.Roots = allowed(roots)
	return paths
}

// allowed returns where the roots lead. A root that does not exist allows nothing. A root that hangs is there: a job in
// it is refused for that reason, and not because it lay outside.
func allowed(roots []fit.Path) (all []string) {
	for _, root := range roots {
		if (root.IsFolder || root.Hangs) && !slices.Contains(all, root.Resolved) {
			all = append(all, root.Resolved)
		}
	}
	return all
}

// at inspects a path.
func (f folders) at(name string) fit.Path {
	found, err := f.looks.At(name)
	if err != nil {
		return fit.Path{Resolved: filepath.Clean(name), Fault: err.Error(), Hangs: true}
	}
	return found
}

const fileScheme = "file"

// addressOf takes an address apart.
func addressOf(text string) fit.Address {
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return fit.Address{}
	}
	return fit.Address{Scheme: u.Scheme, Host: u.Host, Path: u.Path, Named: u.User != nil}
}

// unseen returns the folders of a job as it names them.
func unseen(spec train.Spec) fit.Paths {
	named := func(name string) fit.Path {
		if !path.IsAbs(name) {
			return fit.Path{}
		}
		return fit.Path{Resolved: path.Clean(name), IsFolder: true}
	}
	data := addressOf(spec.DataURL)
	if data.Scheme == fileScheme {
		data.File = named(data.Path)
	}
	return fit.Paths{
		Roots: []string{"/"}, Data: data, CustomDir: named(spec.CustomDir), SnapshotsDir: named(spec.SnapshotsDir), DatasetsDir: named(spec.DatasetsDir), WorkDir: named(spec.WorkDir),
	}
}

// onHost returns the file on this machine that script_path names, or "" if it lies in an image or in a folder that the
// spec does not give.
func onHost(spec train.Spec, paths fit.Paths) string {
	script := path.Clean(spec.ScriptPath)
	for _, mount := range []struct {
		inside string
		host   fit.Path
	}{{"/custom", paths.CustomDir}, {"/snapshots", paths.SnapshotsDir}, {"/data", paths.DatasetsDir}} {
		if rest, below := strings.CutPrefix(script, mount.inside+"/"); below && mount.host.IsFolder {
			return path.Join(mount.host.Resolved, rest)
		}
	}
	if spec.Image != "" || !path.IsAbs(script) || strings.HasPrefix(script, "/custom/") {
		return ""
	}
	return script
}

// inspect follows symbolic links. It does not return while a file system on the way hangs.
func inspect(name string) fit.Path {
	resolved, err := filepath.EvalSymlinks(name)
	if err != nil {
		return missing(name, err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return missing(resolved, err)
	}
	return fit.Path{Resolved: resolved, IsFolder: info.IsDir()}
}

// missing returns a path that could not be followed, as far as it could: a link in an allowed folder must not tell what
// exists elsewhere.
func missing(name string, err error) fit.Path {
	if at, ok := errors.AsType[*fs.PathError](err); ok && filepath.IsAbs(at.Path) {
		name = at.Path
	}
	return fit.Path{Resolved: filepath.Clean(name), Fault: fault(err)}
}

// fault describes an error without the path, which the reader knows.
func fault(err error) string {
	var at *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist on this machine"
	case errors.Is(err, fs.ErrPermission):
		return "the scheduler may not read it"
	case errors.As(err, &at):
		return at.Err.Error()
	}
	return err.Error()
}
